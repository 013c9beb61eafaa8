#include <nanobind/ndarray.h>

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "common.h"

// Between tensors and Python's arrays: NumPy by the buffer protocol, anything by DLPack.
namespace everyo::python {
namespace {

nb::object numpy(const char* name) { return nb::module_::import_("numpy").attr(name); }

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

// An array whose dtype or layout is none of ours, as one that is.
nb::object normal_array(nb::handle object) {
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
  if (copies) return cast(Tensor::borrow(data, spec).copy(), wanted);
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
  const nb::object array = normal_array(object);
  if (!buffer->get(array)) throw DTypeError("[tensor] the array gives no access to its elements");
  const auto own = dtype_of_format(buffer->view.format, buffer->view.itemsize);
  if (!own) throw DTypeError(fmt::format("[tensor] elements of format '{}' are no numbers", buffer->view.format));
  return from_buffer(std::move(buffer), *own, dtype, integers);
}

// Lists and scalars: what Python wrote as a plain number has the default dtype.
Tensor from_values(nb::handle object, std::optional<DType> dtype, Integers integers) {
  nb::object array;
  try {
    array = numpy("asarray")(object);
  } catch (nb::python_error& e) {
    throw DTypeError(fmt::format("[tensor] the values form no array: {}; give rows of one length", e.what()));
  }
  const auto name = nb::cast<std::string>(array.attr("dtype").attr("name"));
  if (!dtype && name == "float64") dtype = float32;
  return from_array(array, dtype, integers);
}

constexpr nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  auto code = Code::Float;
  if (dtype == bfloat16) code = Code::Bfloat;
  if (dtype == int64 || dtype == int32) code = Code::Int;
  if (dtype == uint8) code = Code::UInt;
  if (dtype == boolean) code = Code::Bool;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

DType dtype_of_dlpack(nb::dlpack::dtype dtype) {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (const auto own = static_cast<DType>(i); dtype == dlpack_dtype(own)) return own;
  throw DTypeError(fmt::format("[from_dlpack] code {} with {} bits is no dtype of a tensor", dtype.code, dtype.bits));
}

// A view outside: it holds the memory, not the tensor. Of values that a graph may hold, writes are looked for.
struct OpenView {
  Ref<Storage> storage;
  bool watched;
  OpenView(Ref<Storage> memory, bool watch) : storage(std::move(memory)), watched(watch) {
    if (watched) storage->open_view();
  }
  ~OpenView() {
    if (watched) storage->close_view();
  }
  OpenView(const OpenView&) = delete;
  OpenView& operator=(const OpenView&) = delete;
};

template <class Framework>
nb::object view_of(const Tensor& value, bool watched = true) {
  std::array<std::size_t, static_cast<std::size_t>(Shape::max_rank)> sizes{};
  for (std::int64_t i = 0; i < value.rank(); ++i)
    sizes[static_cast<std::size_t>(i)] = static_cast<std::size_t>(value.shape()[i]);
  void* data = value.escape();
  const nb::capsule owner(new OpenView(value.body()->storage, watched),
                          [](void* p) noexcept { delete static_cast<OpenView*>(p); });
  return nb::cast(nb::ndarray<Framework, nb::device::cpu>(data, static_cast<std::size_t>(value.rank()), sizes.data(),
                                                          owner, nullptr, dlpack_dtype(value.dtype())),
                  nb::rv_policy::reference);
}

Tensor from_dlpack(nb::handle object) {
  if (is_tensor(object)) return tensor_in(object).detach();
  using Array = nb::ndarray<nb::device::cpu>;
  auto array = std::make_unique<Array>();
  if (!nb::try_cast(object, *array))
    throw DTypeError("[from_dlpack] the object gives no writable array in this machine's memory by DLPack");
  Shape shape;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < array->ndim(); ++i) {
    shape.push_back(static_cast<std::int64_t>(array->shape(i)));
    strides.push_back(array->stride(i));
  }
  const Spec spec{dtype_of_dlpack(array->dtype()), shape};
  Array* held = array.release();
  Tensor shared = Tensor::borrow(held->data(), spec, strides, [held] {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire acquire;
    delete held;
  });
  shared.body()->storage->watch_always();
  return shared;
}

nb::object to_dlpack(nb::handle self, const nb::kwargs& options) {
  const Tensor& value = tensor_in(self);
  if (value.requires_grad()) {
    PyErr_SetString(PyExc_BufferError,
                    "[dlpack] the receiver would not see that this tensor requires gradients; detach() it first");
    throw nb::python_error();
  }
  return view_of<nb::array_api>(value).attr("__dlpack__")(**options);
}

}  // namespace

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

Tensor as_labels(TensorLike like) {
  Tensor labels = as_tensor(like.object, {}, Integers::stay);
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

bool is_number(nb::handle object) noexcept {
  PyObject* o = object.ptr();
  if (PyFloat_Check(o) || PyLong_Check(o)) return true;
  if (PyList_Check(o) || PyTuple_Check(o) || PyType_Check(o) || is_tensor(object)) return false;
  static PyObject* const scalar = numpy("generic").release().ptr();
  return PyObject_IsInstance(o, scalar) == 1 && PyNumber_Check(o) && !PyComplex_Check(o);
}

double number_in(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

Tensor weak_scalar(nb::handle number, DType other) {
  const double value = number_in(number);
  if (is_floating(other)) return Tensor::scalar(value, other);
  if (PyFloat_Check(number.ptr()) || value != std::trunc(value)) return Tensor::scalar(value, float64);
  const Tensor whole = as_tensor(number, int64, Integers::stay);
  return other == boolean ? whole : cast(whole, other);
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

Shape shape_in(nb::handle object) {
  Shape shape;
  if (PyIndex_Check(object.ptr())) {
    shape.push_back(nb::cast<std::int64_t>(object.attr("__index__")()));
    return shape;
  }
  for (const nb::handle size : object) shape.push_back(nb::cast<std::int64_t>(size.attr("__index__")()));
  return shape;
}

Shape shape_in(const nb::args& sizes) {
  if (sizes.size() == 1) return shape_in(nb::handle(sizes[0]));
  return shape_in(nb::handle(sizes));
}

Axes axes_in(nb::handle object) {
  Axes axes;
  if (object.is_none()) return axes;
  if (PyIndex_Check(object.ptr())) {
    axes.push_back(nb::cast<std::int64_t>(object.attr("__index__")()));
    return axes;
  }
  for (const nb::handle axis : object) axes.push_back(nb::cast<std::int64_t>(axis.attr("__index__")()));
  return axes;
}

nb::object live_array(const Tensor& value) {
  if (value.dtype() == bfloat16)
    throw DTypeError("[numpy] NumPy has no bfloat16; use numpy(), which gives a float32 copy, or astype() first");
  return view_of<nb::numpy>(value);
}

nb::object gradient_array(const Tensor& gradient) {
  return gradient.dtype() == bfloat16 ? array_copy(gradient) : view_of<nb::numpy>(gradient, false);
}

nb::object array_copy(const Tensor& value) {
  const NoGrad no_grad;
  const Tensor own = value.dtype() == bfloat16 ? cast(value, float32) : value.copy();
  return view_of<nb::numpy>(own, false);
}

void bind_convert(nb::module_& m, nb::class_<PyTensor>& tensor) {
  m.def(
      "from_dlpack", [](nb::handle object) { return wrap(from_dlpack(object)); }, "object"_a,
      nb::sig("def from_dlpack(object: object) -> Tensor"),
      "A tensor over the memory of anything with __dlpack__, shared when it is contiguous.");
  tensor
      .def(
          "__dlpack__", [](nb::handle self, const nb::kwargs& options) { return to_dlpack(self, options); },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> object"),
          "The values for another library, shared; BufferError on a tensor that requires gradients.")
      .def(
          "__dlpack_device__", [](nb::handle) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"), "(1, 0): this machine's memory.");
}

}  // namespace everyo::python
