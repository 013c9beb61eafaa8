#include <fmt/format.h>

#include <limits>

#include "common.h"

// Tensors of what Python has: arrays by the buffer protocol, lists, numbers. The way back is in dlpack.cpp.
namespace everyo::python {
namespace {

// An array of another program's memory, held while the tensor over it lives.
struct HeldBuffer {
  Py_buffer view{};
  bool held = false;
  HeldBuffer() = default;
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    if (held) PyBuffer_Release(&view);
  }
  bool get(nb::handle object) {
    held = PyObject_GetBuffer(object.ptr(), &view, PyBUF_RECORDS_RO) == 0;
    if (!held) PyErr_Clear();
    return held;
  }
};

// The dtype of a buffer's elements in this machine's byte order; nothing for one that is none of ours.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t size) {
  if (format == nullptr) return uint8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return {};
  switch (*format) {
    case '?': return boolean;
    case 'e': return float16;
    case 'f': return float32;
    case 'd': return float64;
    case 'g': return size == 8 ? std::optional(float64) : std::nullopt;
    case 'B': return uint8;
    case 'i':
    case 'l':
    case 'q': return size == 8 ? std::optional(int64) : size == 4 ? std::optional(int32) : std::nullopt;
    default: return {};
  }
}

bool contiguous(const Py_buffer& view) { return PyBuffer_IsContiguous(&view, 'C') != 0; }

DType inferred(DType given, Integers integers) {
  const bool changes = !is_floating(given) && given != boolean && integers == Integers::to_float32;
  return changes ? float32 : given;
}

bool any(nb::handle truths) { return PyObject_IsTrue(numpy("any")(truths).ptr()) == 1; }

// An array whose dtype or layout is none of ours, as one that is.
nb::object normal_array(nb::handle object, std::optional<DType> dtype, Integers integers) {
  nb::object array = numpy("asarray")(object);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  const auto bytes = nb::cast<int>(array.attr("dtype").attr("itemsize"));
  const char* to = nullptr;
  if (kind == "b") to = "bool";
  if (kind == "i") to = bytes == 4 ? "int32" : "int64";
  if (kind == "u") to = bytes == 1 ? "uint8" : "int64";
  if (kind == "f") to = bytes == 2 ? "float16" : bytes == 4 ? "float32" : "float64";
  if (to == nullptr)
    throw DTypeError(fmt::format("[tensor] dtype {} is none that a tensor can have; give numbers or truth values",
                                 text_of(array.attr("dtype"))));
  if (kind == "u" && bytes == 8 && any(numpy("greater")(array, std::numeric_limits<std::int64_t>::max()))) {
    if (!is_floating(dtype.value_or(inferred(int64, integers))))
      raise(PyExc_OverflowError,
            fmt::format("[tensor] integer {} out of bounds for int64", text_of(numpy("max")(array))));
    to = "float64";
  }
  return numpy("ascontiguousarray")(array, to).attr("reshape")(array.attr("shape"));
}

Tensor from_buffer(std::unique_ptr<HeldBuffer> buffer, DType own, std::optional<DType> dtype, Integers integers) {
  const Py_buffer& view = buffer->view;
  Shape shape;
  for (int i = 0; i < view.ndim; ++i) shape.push_back(view.shape[i]);
  const Spec spec{own, shape};
  const DType wanted = dtype.value_or(inferred(own, integers));
  const NoGrad no_grad;
  void* data = view.buf;
  // Only memory that may be written is shared: an optimizer must not change what Python holds to be constant.
  const bool copies = view.readonly != 0 || wanted != own;
  if (copies) {
    const Tensor own_values = Tensor::borrow(data, spec).copy();
    check_fits(own_values, wanted);
    return cast(own_values, wanted);
  }
  HeldBuffer* held = buffer.release();
  Tensor shared = Tensor::borrow(data, spec, {}, [held] {
    if (!nb::is_alive()) return;  // the interpreter has gone, and its memory with it
    const nb::gil_scoped_acquire acquire;
    delete held;
  });
  if (held->view.len != 0) shared.body()->storage->watch_always();
  return shared;
}

Tensor from_array(nb::handle object, std::optional<DType> dtype, Integers integers) {
  auto buffer = std::make_unique<HeldBuffer>();
  if (buffer->get(object) && contiguous(buffer->view))
    if (const auto own = dtype_of_format(buffer->view.format, buffer->view.itemsize))
      return from_buffer(std::move(buffer), *own, dtype, integers);
  buffer = std::make_unique<HeldBuffer>();
  const nb::object array = normal_array(object, dtype, integers);
  if (!buffer->get(array)) throw DTypeError("[tensor] the array gives no access to its elements");
  const auto own = dtype_of_format(buffer->view.format, buffer->view.itemsize);
  if (!own) throw DTypeError(fmt::format("[tensor] elements of format '{}' are no numbers", buffer->view.format));
  return from_buffer(std::move(buffer), *own, dtype, integers);
}

// Python numbers that NumPy's widest integer does not hold became floats or objects: the values as floats, unless
// integers are wanted, which NumPy refuses. Other values come back as they are.
nb::object of_large_integers(nb::handle values, nb::object array, std::optional<DType> dtype) {
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  const bool whole = dtype && !is_floating(*dtype) && *dtype != boolean;
  if (kind == "f" && whole && any(numpy("greater_equal")(numpy("abs")(array), 0x1p63)))
    return numpy("asarray")(values, std::string(name_of(*dtype)));
  if (kind != "O" || !dtype) return array;
  for (const nb::handle each : array.attr("flat"))
    if (!PyLong_Check(each.ptr())) return array;
  return array.attr("astype")(whole ? std::string(name_of(*dtype)) : std::string("float64"));
}

// Lists and scalars: what Python wrote as a plain number has the default dtype.
Tensor from_values(nb::handle object, std::optional<DType> dtype, Integers integers) {
  nb::object array;
  try {
    array = numpy("asarray")(object);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ValueError) && !e.matches(PyExc_TypeError)) throw;
    throw DTypeError(fmt::format("[tensor] the values form no array: {}; give rows of one length", said_by(e)));
  }
  array = of_large_integers(object, std::move(array), dtype);
  const auto name = nb::cast<std::string>(array.attr("dtype").attr("name"));
  if (!dtype && (name == "float64" || (name == "uint64" && integers == Integers::to_float32))) dtype = float32;
  return from_array(array, dtype, integers);
}

}  // namespace

nb::object numpy(const char* name) { return nb::module_::import_("numpy").attr(name); }

nb::object shape_tuple(const Shape& shape) {
  PyObject* tuple = PyTuple_New(shape.rank());
  if (tuple == nullptr) throw nb::python_error();
  for (std::int64_t i = 0; i < shape.rank(); ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(shape[i]));
  return nb::steal(tuple);
}

nb::object name_string(DType dtype) {
  const std::string_view name = name_of(dtype);
  return nb::str(name.data(), name.size());
}

std::string text_of(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(text);
}

Tensor as_tensor(nb::handle object, std::optional<DType> dtype, Integers integers) {
  if (is_tensor(object)) {
    const Tensor& value = tensor_in(object);
    return dtype && *dtype != value.dtype() ? cast(value, *dtype) : value;
  }
  PyObject* o = object.ptr();
  if (PyFloat_CheckExact(o)) return Tensor::scalar(PyFloat_AsDouble(o), dtype.value_or(float32));
  if (PyList_Check(o) || PyTuple_Check(o) || PyLong_Check(o)) return from_values(object, dtype, integers);
  return from_array(object, dtype, integers);
}

Tensor as_targets(TensorLike like) {
  try {
    return as_tensor(like.object, {}, Integers::stay);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_OverflowError)) throw;
    throw ShapeError(fmt::format("[labels] {}; labels and ids are out of range", said_by(e)));
  }
}

Tensor as_labels(TensorLike like) {
  Tensor labels = as_targets(like);
  if (!is_floating(labels.dtype())) return labels;
  const NoGrad no_grad;
  Tensor whole = cast(labels, int64);
  const std::vector<double> before = labels.to_vector(), after = whole.to_vector();
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i])
      throw ShapeError(
          fmt::format("[labels] value {} at place {}; labels and ids must be whole numbers", before[i], i));
  return whole;
}

std::optional<DType> dtype_in(DTypeLike like) {
  const nb::handle object = like.object;
  if (object.is_none()) return {};
  if (PyUnicode_Check(object.ptr())) return dtype_of(nb::cast<std::string_view>(object));
  nb::object name;
  try {
    name = numpy("dtype")(object).attr("name");
  } catch (nb::python_error&) {
    throw DTypeError(fmt::format("[dtype] {} names no dtype", nb::cast<std::string>(nb::repr(object))));
  }
  return dtype_of(nb::cast<std::string>(name));
}

}  // namespace everyo::python
