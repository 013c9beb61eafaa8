#include <fmt/format.h>

#include <array>
#include <new>

#include "common.h"
#include "everyo/parallel.h"

namespace everyo::python {
namespace {

struct ErrorClass {
  ErrorKind kind;
  const char* name;
  const char* meaning;
};
constexpr std::array<ErrorClass, 8> error_classes{{
    {ErrorKind::shape, "EveryOShapeError", "Shapes, axes, indices or values that do not fit."},
    {ErrorKind::device, "EveryODeviceError", "A device that is unknown or not there."},
    {ErrorKind::dtype, "EveryODTypeError", "A dtype that is unknown or not taken here."},
    {ErrorKind::gradient, "EveryOGradientError", "A gradient where there can be none."},
    {ErrorKind::serialization, "EveryOSerializationError", "A file or state that is not what it should be."},
    {ErrorKind::configuration, "EveryOConfigurationError", "Settings that do not go together."},
    {ErrorKind::backend, "EveryOBackendError", "A failure of what the library is built on."},
    {ErrorKind::distributed, "distributed.DistributedError", "A failure of a process group."},
}};

std::array<PyObject*, 16> by_kind{};  // owned by the module

void set(ErrorKind kind, PyObject* type) { by_kind[static_cast<std::size_t>(kind)] = type; }

PyObject* remote_traceback = nullptr;  // owned by the module

// Another rank's words, cut to fit, may end within a letter.
nb::object text_of(std::string_view words) {
  return nb::steal(PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace"));
}

void raise_distributed(const DistributedError& error) {
  const nb::handle type = exception_of(ErrorKind::distributed);
  const nb::object value = type(text_of(error.what()));
  value.attr("rank") = error.rank();
  if (!error.details().empty()) {
    nb::object cause = nb::handle(remote_traceback)(text_of("\n" + error.details()));
    PyException_SetCause(value.ptr(), cause.release().ptr());
  }
  PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const DistributedError& e) {
    raise_distributed(e);
  } catch (const Error& e) {
    PyErr_SetString(exception_of(e.kind()), e.what());
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError, "[arguments] a value is of another kind than the function takes");
  }
}

}  // namespace

PyObject* exception_of(ErrorKind kind) noexcept { return by_kind[static_cast<std::size_t>(kind)]; }

void bind_errors(nb::module_& m) {
  const auto make = [&](const char* name, const char* meaning, PyObject* base) {
    PyObject* type = PyErr_NewExceptionWithDoc((std::string("everyo.") + name).c_str(), meaning, base, nullptr);
    if (type == nullptr) throw nb::python_error();
    const std::string_view path = name;
    m.attr(path.substr(path.rfind('.') + 1).data()) = nb::handle(type);  // npos + 1 is 0
    return type;
  };
  PyObject* base = make("EveryOError", "Base of the errors that the library raises.", PyExc_Exception);
  set(ErrorKind::state, base);
  for (const ErrorClass& c : error_classes) set(c.kind, make(c.name, c.meaning, base));
  nb::handle(exception_of(ErrorKind::distributed)).attr("rank") = -1;
  remote_traceback = make("distributed.RemoteTraceback", "Where another rank's error came from.", base);
  make("EveryOCudaError", "A failure of CUDA.", exception_of(ErrorKind::backend));
  set(ErrorKind::value, PyExc_ValueError);
  set(ErrorKind::type, PyExc_TypeError);
  set(ErrorKind::key, PyExc_KeyError);
  set(ErrorKind::index, PyExc_IndexError);
  set(ErrorKind::file_not_found, PyExc_FileNotFoundError);
  nb::register_exception_translator(translate);
}

}  // namespace everyo::python
