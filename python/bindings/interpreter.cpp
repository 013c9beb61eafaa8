#include <Python.h>

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <string_view>

// Three functions of the interpreter as everything in this module calls them, nanobind too: the linker's --wrap puts
// these in their place (python/CMakeLists.txt).
extern "C" {
void set_error(PyObject* type, const char* message) __asm__("__real_PyErr_SetString");
void restore_thread(PyThreadState* state) __asm__("__real_PyEval_RestoreThread");
PyGILState_STATE ensure_state() __asm__("__real_PyGILState_Ensure");
void wrapped_set_error(PyObject* type, const char* message) __asm__("__wrap_PyErr_SetString");
void wrapped_restore_thread(PyThreadState* state) __asm__("__wrap_PyEval_RestoreThread");
PyGILState_STATE wrapped_ensure_state() __asm__("__wrap_PyGILState_Ensure");
}

namespace {

// nanobind's listing of a function's forms as one sentence, as all our errors have.
std::string sentence(std::string_view listing) {
  const auto between = [&](std::string_view from, std::string_view to) -> std::string_view {
    const auto start = listing.find(from);
    if (start == std::string_view::npos) return {};
    const std::string_view rest = listing.substr(start + from.size());
    return rest.substr(0, rest.find(to));
  };
  const std::string_view name = listing.substr(0, listing.find('('));
  std::string_view form = between("1. ", "\n");
  if (form.starts_with("def ")) form.remove_prefix(4);
  const std::string_view given = between("Invoked with types: ", "\n");
  return fmt::format("[{}] takes no arguments of the kinds ({}); it is {}", name, given, form);
}

// CPython before 3.14 ends a thread that comes back to an interpreter that has ended, by unwinding its stack; no C++
// frame of ours survives that. As 3.14 does, let it wait for the end of the process.
template <class Take>
auto wait_for_the_end_if_unwound(Take take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

}  // namespace

void wrapped_set_error(PyObject* type, const char* message) {
  constexpr std::string_view listing = "(): incompatible function arguments.";
  if (type == PyExc_TypeError && std::string_view(message).find(listing) != std::string_view::npos)
    return set_error(type, sentence(message).c_str());
  set_error(type, message);
}

void wrapped_restore_thread(PyThreadState* state) {
  wait_for_the_end_if_unwound([&] { restore_thread(state); });
}

PyGILState_STATE wrapped_ensure_state() {
  return wait_for_the_end_if_unwound([] { return ensure_state(); });
}
