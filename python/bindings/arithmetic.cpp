#include <array>
#include <optional>

#include "common.h"

// Operators, and the functions of the same names. A number is weak; arrays on either side become tensors.
namespace everyo::python {
namespace {

using Binary = Tensor (*)(const Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, double);

// An op of two tensors with its short forms for a number on either side of a floating tensor; null: none.
struct BinaryOp {
  Binary tensors;
  WithNumber number_right = nullptr;
  WithNumber number_left = nullptr;
  bool compares = false;
};
constexpr BinaryOp add_forms{add, [](const Tensor& x, double y) { return scale(x, 1, y); },
                             [](const Tensor& x, double y) { return scale(x, 1, y); }};
constexpr BinaryOp subtract_forms{subtract, [](const Tensor& x, double y) { return scale(x, 1, -y); },
                                  [](const Tensor& x, double y) { return scale(x, -1, y); }};
constexpr BinaryOp multiply_forms{multiply, [](const Tensor& x, double y) { return scale(x, y); },
                                  [](const Tensor& x, double y) { return scale(x, y); }};
constexpr BinaryOp divide_forms{divide, [](const Tensor& x, double y) { return x / y; },
                                [](const Tensor& x, double y) { return reciprocal(x, y); }};
constexpr BinaryOp matmul_forms{matmul}, maximum_forms{maximum}, minimum_forms{minimum},
    equal_forms{equal, nullptr, nullptr, true}, not_equal_forms{not_equal, nullptr, nullptr, true},
    less_forms{less, nullptr, nullptr, true}, less_equal_forms{less_equal, nullptr, nullptr, true},
    greater_forms{greater, nullptr, nullptr, true}, greater_equal_forms{greater_equal, nullptr, nullptr, true};

bool is_array_like(nb::handle object) {
  PyObject* o = object.ptr();
  return PyList_Check(o) || PyTuple_Check(o) || (!PyType_Check(o) && PyObject_CheckBuffer(o) && !PyBytes_Check(o)) ||
         PyObject_HasAttrString(o, "__array__");
}

// `number op x` or `x op number`.
Tensor with_number(const BinaryOp& op, const Tensor& x, nb::handle number, bool reflected) {
  if (!op.compares && !is_floating(x.dtype()) && !is_whole(number))
    return with_number(op, cast(x, float32), number, reflected);
  const WithNumber form = reflected ? op.number_left : op.number_right;
  if (form != nullptr && is_floating(x.dtype())) {
    const double value = number_in(number);
    return without_gil(x.size(), [&] { return form(x, value); });
  }
  const Tensor y = op.compares ? compared_scalar(number, x.dtype()) : weak_scalar(number, x.dtype());
  return reflected ? op.tensors(y, x) : op.tensors(x, y);
}

Tensor of_tensors(const BinaryOp& op, const Tensor& a, const Tensor& b) {
  return without_gil(a.size() + b.size(), [&] { return op.tensors(a, b); });
}

// x op other with `other` any operand; undefined when it is none.
Tensor binary(const BinaryOp& op, const Tensor& x, nb::handle other, bool reflected) {
  if (is_tensor(other)) return reflected ? of_tensors(op, tensor_in(other), x) : of_tensors(op, x, tensor_in(other));
  if (is_number(other)) return with_number(op, x, other, reflected);
  if (!is_array_like(other)) return {};
  const bool stay = op.compares || !is_floating(x.dtype());
  const Tensor y = as_tensor(other, {}, stay ? Integers::stay : Integers::to_float32);
  return reflected ? of_tensors(op, y, x) : of_tensors(op, x, y);
}

template <const BinaryOp& op, bool reflected>
nb::object operate(nb::handle self, nb::handle other) {
  Tensor result = binary(op, tensor_in(self), other, reflected);
  return result.defined() ? wrap(std::move(result)) : nb::borrow(nb::handle(Py_NotImplemented));
}

template <const BinaryOp& op>
nb::object call(TensorLike a, TensorLike b) {
  if (is_tensor(a.object) && (is_tensor(b.object) || is_number(b.object)))
    return wrap(binary(op, tensor_in(a.object), b.object, false));
  if (is_tensor(b.object) && is_number(a.object)) return wrap(binary(op, tensor_in(b.object), a.object, true));
  const auto operand = [](TensorLike x, TensorLike other) {
    const bool stay = op.compares || (is_tensor(other.object) && !is_floating(tensor_in(other.object).dtype()));
    return as_tensor(x.object, {}, stay ? Integers::stay : Integers::to_float32);
  };
  return wrap(of_tensors(op, operand(a, b), operand(b, a)));
}

// x ^ exponent of whole numbers, by squaring.
Tensor whole_power(Tensor base, std::int64_t exponent) {
  Tensor result = Tensor::ones(base.shape(), base.dtype());
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, base);
    if (exponent > 1) base = multiply(base, base);
  }
  return result;
}

Tensor raised(const Tensor& x, nb::handle exponent) {
  if (!is_number(exponent))
    throw ShapeError("[power] the exponent is no number; power needs a scalar exponent: use exp(log(x) * y)");
  if (!is_floating(x.dtype()) && is_whole(exponent)) {
    const Tensor base = x.dtype() == boolean ? cast(x, int64) : x;
    const Tensor whole = cast(weak_scalar(exponent, base.dtype()), int64);
    if (const std::int64_t value = whole.data<std::int64_t>()[0]; value >= 0)
      return without_gil(x.size(), [&] { return whole_power(base, value); });
  }
  const double value = number_in(exponent);
  return without_gil(x.size(), [&] { return power(x, value); });
}

template <const BinaryOp& op>
void bind_operator(nb::class_<PyTensor>& tensor, const char* name, const char* reflected_name) {
  const auto signature = [](const char* method) {
    return "def " + std::string(method) + "(self, other: TensorLike, /) -> Tensor";
  };
  const std::string plain = signature(name);
  tensor.def(name, &operate<op, false>, nb::is_operator(), nb::sig(plain.c_str()));
  if (reflected_name == nullptr) return;
  const std::string reflected = signature(reflected_name);
  tensor.def(reflected_name, &operate<op, true>, nb::is_operator(), nb::sig(reflected.c_str()));
}

template <const BinaryOp& op>
void bind_comparison(nb::class_<PyTensor>& tensor, const char* name) {
  const std::string signature = "def " + std::string(name) + "(self, other: TensorLike, /) -> Tensor";
  tensor.def(name, &operate<op, false>, nb::is_operator(), nb::sig(signature.c_str()));
}

template <const BinaryOp& op>
void bind_function(nb::module_& m, const char* name, const char* text) {
  const std::string signature = "def " + std::string(name) + "(a: TensorLike, b: TensorLike) -> Tensor";
  m.def(name, &call<op>, "a"_a, "b"_a, nb::sig(signature.c_str()), text);
}

}  // namespace

void bind_arithmetic(nb::module_& m, nb::class_<PyTensor>& tensor) {
  bind_operator<add_forms>(tensor, "__add__", "__radd__");
  bind_operator<subtract_forms>(tensor, "__sub__", "__rsub__");
  bind_operator<multiply_forms>(tensor, "__mul__", "__rmul__");
  bind_operator<divide_forms>(tensor, "__truediv__", "__rtruediv__");
  bind_operator<matmul_forms>(tensor, "__matmul__", "__rmatmul__");
  bind_comparison<equal_forms>(tensor, "__eq__");
  bind_comparison<not_equal_forms>(tensor, "__ne__");
  bind_comparison<less_forms>(tensor, "__lt__");
  bind_comparison<less_equal_forms>(tensor, "__le__");
  bind_comparison<greater_forms>(tensor, "__gt__");
  bind_comparison<greater_equal_forms>(tensor, "__ge__");
  tensor
      .def(
          "__pow__", [](const PyTensor& t, nb::handle exponent) { return wrap(raised(t.value, exponent)); },
          "exponent"_a, nb::sig("def __pow__(self, exponent: float, /) -> Tensor"))
      .def(
          "__neg__", [](const PyTensor& t) { return wrap(negative(t.value)); }, nb::sig("def __neg__(self) -> Tensor"))
      .def(
          "__abs__", [](const PyTensor& t) { return wrap(abs(t.value)); }, nb::sig("def __abs__(self) -> Tensor"));

  bind_function<add_forms>(m, "add", "a + b, broadcast.");
  bind_function<subtract_forms>(m, "subtract", "a - b, broadcast.");
  bind_function<multiply_forms>(m, "multiply", "a * b, broadcast.");
  bind_function<divide_forms>(m, "divide", "a / b, broadcast; of integers float32.");
  bind_function<maximum_forms>(m, "maximum", "The larger of each pair, broadcast; ties split the gradient.");
  bind_function<minimum_forms>(m, "minimum", "The smaller of each pair, broadcast; ties split the gradient.");
  bind_function<matmul_forms>(m, "matmul", "NumPy's matmul: [.., M, K] x [.., K, N] -> [.., M, N]; 1-D operands too.");
  bind_function<matmul_forms>(m, "dot", "Two vectors: the scalar product; else matmul.");
  bind_function<equal_forms>(m, "equal", "a == b elementwise: bool.");
  bind_function<not_equal_forms>(m, "not_equal", "a != b elementwise: bool.");
  bind_function<less_forms>(m, "less", "a < b elementwise: bool.");
  bind_function<less_equal_forms>(m, "less_equal", "a <= b elementwise: bool.");
  bind_function<greater_forms>(m, "greater", "a > b elementwise: bool.");
  bind_function<greater_equal_forms>(m, "greater_equal", "a >= b elementwise: bool.");
  m.def(
      "power", [](TensorLike a, nb::handle exponent) { return wrap(raised(as_tensor(a), exponent)); }, "a"_a,
      "exponent"_a, nb::sig("def power(a: TensorLike, exponent: float) -> Tensor"), "a ** exponent, a number.");
  m.def(
      "negative", [](TensorLike a) { return wrap(negative(as_tensor(a))); }, "a"_a,
      nb::sig("def negative(a: TensorLike) -> Tensor"), "-a.");
}

}  // namespace everyo::python
