#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "common.h"

// Numbers of Python and NumPy: scalars beside a tensor, sizes, axes.
namespace everyo::python {
namespace {

// A whole number's value, or the side on which it is beyond 64 bits.
struct Whole {
  std::int64_t value = 0;
  int beyond = 0;
};

Whole whole_number(nb::handle number) {
  if (!PyIndex_Check(number.ptr())) return {PyObject_IsTrue(number.ptr()), 0};
  const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  Whole whole;
  whole.value = PyLong_AsLongLongAndOverflow(index.ptr(), &whole.beyond);
  return whole;
}

struct Range {
  std::int64_t low, high;
};
Range range_of(DType whole) {
  switch (whole) {
    case DType::uint8: return {0, 255};
    case DType::int32: return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    default: return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
}

bool holds(DType dtype, const Whole& whole) {
  const auto [low, high] = range_of(dtype);
  return whole.beyond == 0 && whole.value >= low && whole.value <= high;
}

// repr(number), unless it is endless.
std::string shown(nb::handle number) {
  constexpr std::size_t most = 60;
  const nb::object text = nb::steal(PyObject_Repr(number.ptr()));
  if (!text.is_valid()) PyErr_Clear();  // Python refuses to write thousands of digits
  const std::string shown = text.is_valid() ? nb::cast<std::string>(text) : "a number of thousands of digits";
  return shown.size() > most ? shown.substr(0, most) + "..." : shown;
}

Tensor int64_scalar(std::int64_t value) { return Tensor::from<std::int64_t>({value}, {}); }

// The items of a sequence; text is none.
nb::object items_of(nb::handle object, std::string_view what) {
  nb::object items = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr())
                         ? nb::object()
                         : nb::steal(PyObject_GetIter(object.ptr()));
  if (items.is_valid()) return items;
  PyErr_Clear();
  raise(PyExc_TypeError, fmt::format("[{}] {} is of type {}; it must be a whole number or a sequence of them", what,
                                     shown(object), class_name(object)));
}

// A whole number: not an array of several, which has __index__ too.
bool is_index(nb::handle object) {
  if (!PyIndex_Check(object.ptr())) return false;
  if (PyLong_Check(object.ptr())) return true;
  if (nb::steal(PyNumber_Index(object.ptr())).is_valid()) return true;
  // An array of several says so; another error, such as an interrupt, is the object's own.
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0 && PyErr_ExceptionMatches(PyExc_ValueError) == 0)
    throw nb::python_error();
  PyErr_Clear();
  return false;
}

}  // namespace

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

std::string class_name(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

std::string said_by(const nb::python_error& error) {
  return fmt::format("{}: {}", class_name(error.value()), text_of(error.value()));
}

std::string word_in(nb::handle object, std::string_view what) {
  std::string word;
  if (!PyUnicode_Check(object.ptr()) || !nb::try_cast(object, word))
    raise(PyExc_TypeError,
          fmt::format("[{}] {} is of type {}; it must be text", what, shown(object), class_name(object)));
  return word;
}

bool is_number(nb::handle object) noexcept {
  PyObject* o = object.ptr();
  if (PyFloat_Check(o) || PyLong_Check(o)) return true;
  if (PyList_Check(o) || PyTuple_Check(o) || PyType_Check(o) || is_tensor(object)) return false;
  static PyObject* const scalar = numpy("generic").release().ptr();
  return PyObject_IsInstance(o, scalar) == 1 && PyNumber_Check(o) && !PyComplex_Check(o);
}

bool is_whole(nb::handle number) noexcept {
  static PyObject* const truth = numpy("bool_").release().ptr();
  return PyIndex_Check(number.ptr()) || PyObject_IsInstance(number.ptr(), truth) == 1;
}

double number_in(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

Tensor weak_scalar(nb::handle number, DType other) {
  if (is_floating(other)) return Tensor::scalar(number_in(number), other);
  if (!is_whole(number)) return Tensor::scalar(number_in(number), float64);
  const DType dtype = other == boolean ? int64 : other;
  const Whole whole = whole_number(number);
  if (!holds(dtype, whole))
    raise(PyExc_OverflowError, fmt::format("[scalar] Python integer {} out of bounds for {}; cast the tensor first",
                                           shown(number), name_of(dtype)));
  return cast(int64_scalar(whole.value), dtype);
}

Tensor compared_scalar(nb::handle number, DType other) {
  if (is_floating(other) || !is_whole(number)) return weak_scalar(number, other);
  const Whole whole = whole_number(number);
  if (whole.beyond != 0) return Tensor::scalar(whole.beyond * std::numeric_limits<double>::infinity(), float64);
  const Tensor scalar = int64_scalar(whole.value);
  return other != boolean && holds(other, whole) ? cast(scalar, other) : scalar;
}

void check_fits(const Tensor& whole, DType dtype) {
  const DType from = whole.dtype();
  if (is_floating(from) || is_floating(dtype) || from == boolean || dtype == boolean || whole.size() == 0) return;
  const auto [low, high] = range_of(dtype);
  const auto [least, most] = range_of(from);
  if (least >= low && most <= high) return;
  const NoGrad no_grad;
  for (const Tensor& end : {min(whole), max(whole)})
    if (const auto value = cast(end, int64).data<std::int64_t>()[0]; value < low || value > high)
      raise(PyExc_OverflowError, fmt::format("[tensor] integer {} out of bounds for {}", value, name_of(dtype)));
}

std::int64_t whole_in(nb::handle object, std::string_view what) {
  if (!is_index(object))
    raise(PyExc_TypeError,
          fmt::format("[{}] {} is of type {}; it must be a whole number", what, shown(object), class_name(object)));
  const Whole whole = whole_number(object);
  if (whole.beyond != 0)
    throw ShapeError(fmt::format("[{}] {} is out of range: 64 bits do not hold it", what, shown(object)));
  return whole.value;
}

Axes wholes_in(nb::handle object, std::string_view what) {
  if (is_index(object)) return {whole_in(object, what)};
  Axes values;
  for (const nb::handle each : items_of(object, what)) values.push_back(whole_in(each, what));
  return values;
}

Shape shape_in(nb::handle object) {
  Shape shape;
  if (is_index(object)) {
    shape.push_back(whole_in(object, "shape"));
    return shape;
  }
  for (const nb::handle size : items_of(object, "shape")) shape.push_back(whole_in(size, "shape"));
  return shape;
}

Shape shape_in(const nb::args& sizes) {
  if (sizes.size() == 1) return shape_in(nb::handle(sizes[0]));
  return shape_in(nb::handle(sizes));
}

Axes axes_in(nb::handle object) { return object.is_none() ? Axes() : wholes_in(object, "axis"); }

}  // namespace everyo::python
