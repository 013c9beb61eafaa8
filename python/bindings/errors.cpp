#include <fmt/format.h>

#include <array>
#include <new>

#include "common.h"

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
    {ErrorKind::distributed, "DistributedError", "A failure of a process group."},
}};

std::array<PyObject*, 16> by_kind{};  // owned by the module

void set(ErrorKind kind, PyObject* type) { by_kind[static_cast<std::size_t>(kind)] = type; }

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
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
    m.attr(name) = nb::handle(type);
    return type;
  };
  PyObject* base = make("EveryOError", "Base of the errors that the library raises.", PyExc_Exception);
  set(ErrorKind::state, base);
  for (const ErrorClass& c : error_classes) set(c.kind, make(c.name, c.meaning, base));
  make("EveryOCudaError", "A failure of CUDA.", exception_of(ErrorKind::backend));
  set(ErrorKind::value, PyExc_ValueError);
  set(ErrorKind::type, PyExc_TypeError);
  set(ErrorKind::key, PyExc_KeyError);
  set(ErrorKind::index, PyExc_IndexError);
  set(ErrorKind::file_not_found, PyExc_FileNotFoundError);
  nb::register_exception_translator(translate);
}

}  // namespace everyo::python
