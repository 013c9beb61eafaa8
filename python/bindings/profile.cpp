#include <array>

#include "common.h"

// What the machine can do, and where memory went.
namespace everyo::python {
namespace {

constexpr std::array<const char*, memory_category_count> category_names{
    "parameter", "gradient", "optimizer_state", "activation", "communication", "workspace", "input"};

nb::dict usage(const memory::Usage& u) {
  nb::dict dict;
  dict["now"] = u.now;
  dict["peak"] = u.peak;
  return dict;
}

nb::dict memory_report() {
  const memory::Report report = memory::report();
  nb::dict dict;
  for (std::size_t i = 0; i < category_names.size(); ++i) dict[category_names[i]] = usage(report.by_category[i]);
  dict["total"] = usage(report.total);
  dict["system_allocations"] = report.system_allocations;
  dict["cached"] = report.cached;
  return dict;
}

/// Records events of this thread for a with-block.
struct PyRecorder {
  EventRecorder recorder;
  EventSink* before = nullptr;
};

nb::list taken(PyRecorder& self) {
  nb::list events;
  for (const RecordedEvent& e : self.recorder.take()) {
    nb::dict event;
    const auto seconds = [](EventTime t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); };
    event["name"] = e.name;
    event["kind"] = std::string(name_of(e.kind));
    event["start"] = seconds(e.start);
    event["end"] = seconds(e.end);
    event["bytes"] = e.bytes;
    event["flops"] = e.flops;
    event["thread"] = e.thread;
    events.append(event);
  }
  return events;
}

}  // namespace

void bind_profile(nb::module_& m) {
  m.def(
      "versions",
      [] {
        const Versions v = versions();
        nb::dict dict;
        dict["everyo"] = v.everyo;
        dict["onednn"] = v.onednn;
        dict["highway"] = v.highway;
        dict["compiler"] = v.compiler;
        return dict;
      },
      nb::sig("def versions() -> dict[str, str]"), "Versions of the library and of what it was built with.");
  m.def(
      "machine",
      [] {
        const Machine machine = describe_machine();
        nb::dict dict;
        dict["processor"] = machine.processor;
        dict["threads"] = machine.threads;
        dict["detected"] = std::string(name_of(machine.detected));
        dict["used"] = std::string(name_of(machine.used));
        return dict;
      },
      nb::sig("def machine() -> dict[str, typing.Any]"), "Processor, threads and instruction sets.");
  m.def("memory_report", &memory_report, nb::sig("def memory_report() -> dict[str, typing.Any]"),
        "Bytes now and at the peak by category, in total, cached, and blocks asked of the system.");
  m.def("reset_peak_memory", &memory::reset_peak, "The peak starts again from what is in use now.");
  m.def("trim_memory", &memory::trim, "Gives cached blocks back to the system.");
  nb::class_<PyRecorder>(m, "EventRecorder", "Records what this thread spends time on in a with-block.")
      .def(nb::init<>())
      .def(
          "__enter__",
          [](nb::handle self) {
            PyRecorder& r = *nb::inst_ptr<PyRecorder>(self);
            r.before = context().events;
            context().events = &r.recorder;
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> EventRecorder"))
      .def(
          "__exit__", [](PyRecorder& r, const nb::args&) { context().events = r.before; },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("take", &taken, nb::sig("def take(self) -> list[dict[str, typing.Any]]"),
           "Events so far, in the order in which they ended: name, kind, start, end (s), bytes, flops, thread.");
}

}  // namespace everyo::python
