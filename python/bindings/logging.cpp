#include "everyo/logging.h"

#include "common.h"

// What the library says goes to Python's logging, under the name "everyo".
namespace everyo::python {
namespace {

struct Message {
  LogLevel level;
  std::string text;
};

int number_of(LogLevel level) {
  constexpr int step = 10;  // logging.DEBUG is 10, INFO 20, …
  return (static_cast<int>(level) + 1) * step;
}

int deliver(void* memory) noexcept {
  const std::unique_ptr<Message> message(static_cast<Message*>(memory));
  try {
    nb::module_::import_("logging").attr("getLogger")("everyo").attr("log")(number_of(message->level), "%s",
                                                                            message->text);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("everyo's log");
  } catch (const std::exception&) {  // a message is not worth a failure
  }
  return 0;
}

}  // namespace

void bind_logging() {
  // A message comes from any thread, with the interpreter or without, and under the log's own lock; whoever waited for
  // the interpreter here could wait for a thread that has it and logs. So the main thread is asked to say it later.
  set_log_sink(
      [](LogLevel level, std::string_view text) {
        if (Py_IsInitialized() == 0) return;
        auto message = std::make_unique<Message>(Message{level, std::string(text)});
        if (Py_AddPendingCall(deliver, message.get()) == 0) static_cast<void>(message.release());
      },
      LogLevel::warning);
}

}  // namespace everyo::python
