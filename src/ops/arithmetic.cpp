#include <fmt/format.h>

#include <cmath>

#include "kernels/binary.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// add, subtract, multiply, divide, maximum, minimum of two tensors; scale, reciprocal, negative of one.
// a [A], b [B] -> y [A broadcast with B]; g is y's gradient.
namespace everyo::inline v1 {
namespace {

using kernels::Binary;
using kernels::broadcast_plan;
using kernels::Ternary;
using kernels::Unary;

void combine(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (a.shape() == b.shape()) return kernels::binary(op, a.dtype(), a.size(), a.bytes(), b.bytes(), y.bytes());
  const auto plan = broadcast_plan<2>(y.shape(), {&a.shape(), &b.shape()});
  kernels::binary(op, a.dtype(), plan, a.bytes(), b.bytes(), y.bytes());
}
Tensor combine(Binary op, const Tensor& a, const Tensor& b, const Shape& shape) {
  const Tensor y = Tensor::empty({a.dtype(), shape});
  combine(op, a, b, y);
  return y;
}
Tensor combine(Ternary op, const Tensor& g, const Tensor& a, const Tensor& b) {
  const Tensor y = Tensor::empty(g.spec());
  kernels::ternary(op, g.dtype(), broadcast_plan<3>(g.shape(), {&g.shape(), &a.shape(), &b.shape()}), g.bytes(),
                   a.bytes(), b.bytes(), y.bytes());
  return y;
}
Tensor unary(Unary op, const Tensor& x, kernels::UnaryParameters parameters = {}) {
  const Tensor y = Tensor::empty(x.spec());
  kernels::unary_forward(op, x.dtype(), x.bytes(), y.bytes(), x.size(), parameters);
  return y;
}

void add_backward(Backward& b, const NoAttrs&) {
  for (const std::size_t i : {0u, 1u})
    if (b.needs(i)) give_reduced(b, i, b.grad(), b.input_spec(i).shape);
}
void subtract_backward(Backward& b, const NoAttrs&) {
  if (b.needs(0)) give_reduced(b, 0, b.grad(), b.input_spec(0).shape);
  if (b.needs(1)) give_reduced(b, 1, unary(Unary::negative, b.grad()), b.input_spec(1).shape);
}
void multiply_backward(Backward& b, const NoAttrs&) {
  const Tensor& g = b.grad();
  if (b.needs(0)) give_reduced(b, 0, combine(Binary::multiply, g, b.input(1), g.shape()), b.input_spec(0).shape);
  if (b.needs(1)) give_reduced(b, 1, combine(Binary::multiply, g, b.input(0), g.shape()), b.input_spec(1).shape);
}
void divide_backward(Backward& b, const NoAttrs&) {
  const Tensor& g = b.grad();
  if (b.needs(0)) give_reduced(b, 0, combine(Binary::divide, g, b.input(1), g.shape()), b.input_spec(0).shape);
  if (b.needs(1))
    give_reduced(b, 1, combine(Ternary::divisor_gradient, g, b.output(), b.input(1)), b.input_spec(1).shape);
}
template <Ternary gradient>
void extreme_backward(Backward& b, const NoAttrs&) {
  for (const std::size_t i : {0u, 1u})
    if (b.needs(i)) give_reduced(b, i, combine(gradient, b.grad(), b.input(i), b.input(1 - i)), b.input_spec(i).shape);
}

constexpr const char* name_of_op(Binary op) {
  switch (op) {
    case Binary::add: return "add";
    case Binary::subtract: return "subtract";
    case Binary::multiply: return "multiply";
    case Binary::divide: return "divide";
    case Binary::maximum: return "maximum";
    case Binary::minimum: break;
  }
  return "minimum";
}
constexpr const char* onnx_type(Binary op) {
  switch (op) {
    case Binary::add: return "Add";
    case Binary::subtract: return "Sub";
    case Binary::multiply: return "Mul";
    case Binary::divide: return "Div";
    case Binary::maximum: return "Max";
    case Binary::minimum: break;
  }
  return "Min";
}

Spec binary_spec(const char* op, const Inputs& in) {
  if (in[0].dtype() != in[1].dtype())
    throw DTypeError(fmt::format("[{}] operands are {} and {}; cast one of them", op, name_of(in[0].dtype()),
                                 name_of(in[1].dtype())));
  return {in[0].dtype(), broadcast_shape(op, in[0].shape(), in[1].shape())};
}

// ONNX has arithmetic for numbers only: of bools, add and maximum are Or, multiply and minimum And.
template <Binary op>
onnx::Values lower_binary(onnx::Graph& g, const onnx::Values& v, const NoAttrs&) {
  const Spec spec{v[0].spec.dtype, broadcast_shape(name_of_op(op), v[0].spec.shape, v[1].spec.shape)};
  const bool any = op == Binary::add || op == Binary::maximum;
  return {g.node(spec.dtype != boolean ? onnx_type(op) : (any ? "Or" : "And"), {v[0], v[1]}, spec)};
}

template <Binary op>
constexpr Record<> binary_record(Saves saves, void (*backward)(Backward&, const NoAttrs&)) {
  return {.name = name_of_op(op),
          .policy = CastPolicy::promote,
          .saves = saves,
          .infer = [](const Inputs& in, const NoAttrs&) -> Specs { return binary_spec(name_of_op(op), in); },
          .forward = [](const Call& c, const NoAttrs&) { combine(op, c.in[0], c.in[1], c.out[0]); },
          .backward = backward,
          .cost = [](const Inputs& in, const Specs& out, const NoAttrs&) { return elementwise_cost(in, out, 1); },
          .onnx = lower_binary<op>,
          .composed = no("primitive"),
          .specs = true};
}

constexpr Saves both_operands{.inputs = {for_grad_of(0, 1), for_grad_of(0, 1)}};

constexpr Record<> add_record = binary_record<Binary::add>({}, add_backward);
constexpr Record<> subtract_record = binary_record<Binary::subtract>({}, subtract_backward);
constexpr Record<> multiply_record =
    binary_record<Binary::multiply>({.inputs = {for_grad_of(1), for_grad_of(0)}}, multiply_backward);
constexpr Record<> divide_record =
    binary_record<Binary::divide>({.inputs = {0, for_grad_of(0, 1)}, .outputs = {for_grad_of(1)}}, divide_backward);
constexpr Record<> maximum_record =
    binary_record<Binary::maximum>(both_operands, extreme_backward<Ternary::larger_gradient>);
constexpr Record<> minimum_record =
    binary_record<Binary::minimum>(both_operands, extreme_backward<Ternary::smaller_gradient>);

// ---- one tensor and numbers
struct ScaleAttrs {
  double factor, offset;
};
Attributes describe(const ScaleAttrs& a) { return {{"factor", a.factor}, {"offset", a.offset}}; }
constexpr kernels::UnaryParameters parameters_of(const ScaleAttrs& a) noexcept { return {a.factor, a.offset}; }
struct ReciprocalAttrs {
  double numerator;
};
Attributes describe(const ReciprocalAttrs& a) { return {{"numerator", a.numerator}}; }
constexpr kernels::UnaryParameters parameters_of(const ReciprocalAttrs& a) noexcept { return {a.numerator, 0}; }

// ONNX has no negative of unsigned integers.
onnx::Value lower_negative(onnx::Graph& g, const onnx::Value& x) {
  if (x.spec.dtype != uint8) return g.node("Neg", {x}, x.spec);
  const onnx::Value wide = lower_cast(g, x, int32);
  return lower_cast(g, g.node("Neg", {wide}, wide.spec), uint8);
}

onnx::Values lower_scale(onnx::Graph& g, const onnx::Values& v, const ScaleAttrs& a) {
  onnx::Value y = v[0];
  const Spec spec = y.spec;
  if (a.factor == -1) {
    y = lower_negative(g, y);
  } else if (a.factor != 1 || a.offset == 0) {
    y = g.node("Mul", {y, g.constant(Tensor::scalar(a.factor, spec.dtype))}, spec);
  }
  return {a.offset == 0 ? y : g.node("Add", {y, g.constant(Tensor::scalar(a.offset, spec.dtype))}, spec)};
}

constexpr Record<ScaleAttrs> scale_record =
    unary_record<Unary::scale, ScaleAttrs>("scale", CastPolicy::follow, lower_scale);
constexpr Record<ReciprocalAttrs> reciprocal_record = unary_record<Unary::reciprocal, ReciprocalAttrs>(
    "reciprocal", CastPolicy::follow,
    [](onnx::Graph& g, const onnx::Values& v, const ReciprocalAttrs& a) -> onnx::Values {
      return {g.node("Div", {g.constant(Tensor::scalar(a.numerator, v[0].spec.dtype)), v[0]}, v[0].spec)};
    });
constexpr Record<> negative_record = unary_record<Unary::negative, NoAttrs>(
    "negative", CastPolicy::follow,
    [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values { return {lower_negative(g, v[0])}; });

template <const auto& record>
Tensor promoted(const Tensor& a, const Tensor& b, bool floating = false) {
  const DType common = promote(a.dtype(), b.dtype()), dtype = floating && !is_floating(common) ? float32 : common;
  if (a.dtype() == dtype && b.dtype() == dtype) [[likely]]
    return apply<record>({}, a, b);
  return apply<record>({}, cast(a, dtype), cast(b, dtype));
}

bool whole(double number) { return number == std::trunc(number) && std::abs(number) < 0x1p63; }

}  // namespace

extern const Op *const add_op,
    *const subtract_op, *const multiply_op, *const divide_op, *const maximum_op, *const minimum_op,
                                                                                     *const scale_op,
                                                                                         *const reciprocal_op,
                                                                                             *const negative_op;
constinit const Op* const add_op = &op_of<add_record>;
constinit const Op* const subtract_op = &op_of<subtract_record>;
constinit const Op* const multiply_op = &op_of<multiply_record>;
constinit const Op* const divide_op = &op_of<divide_record>;
constinit const Op* const maximum_op = &op_of<maximum_record>;
constinit const Op* const minimum_op = &op_of<minimum_record>;
constinit const Op* const scale_op = &op_of<scale_record>;
constinit const Op* const reciprocal_op = &op_of<reciprocal_record>;
constinit const Op* const negative_op = &op_of<negative_record>;

Tensor add(const Tensor& a, const Tensor& b) { return promoted<add_record>(a, b); }
Tensor subtract(const Tensor& a, const Tensor& b) {
  if (a.dtype() == boolean && b.dtype() == boolean)
    throw DTypeError("[subtract] bool - bool has no meaning; use not_equal, or cast to an integer");
  return promoted<subtract_record>(a, b);
}
Tensor multiply(const Tensor& a, const Tensor& b) { return promoted<multiply_record>(a, b); }
Tensor divide(const Tensor& a, const Tensor& b) { return promoted<divide_record>(a, b, true); }
Tensor maximum(const Tensor& a, const Tensor& b) { return promoted<maximum_record>(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return promoted<minimum_record>(a, b); }

Tensor scale(const Tensor& x, double factor, double offset) {
  if (is_floating(x.dtype())) [[likely]]
    return apply<scale_record>({factor, offset}, x);
  // A number is weak within its kind: whole ones leave an integer an integer.
  if (!whole(factor) || !whole(offset)) return apply<scale_record>({factor, offset}, cast(x, float32));
  return apply<scale_record>({factor, offset}, x.dtype() == boolean ? cast(x, int64) : x);
}
// Not a product with 1 / y, which rounds twice and overflows where the quotient does not.
Tensor operator/(const Tensor& x, double y) {
  const Tensor numerator = as_floating(x);
  return apply<divide_record>({}, numerator, Tensor::scalar(y, numerator.dtype()));
}
Tensor reciprocal(const Tensor& x, double numerator) { return apply<reciprocal_record>({numerator}, as_floating(x)); }
Tensor negative(const Tensor& x) {
  if (x.dtype() == boolean)
    throw DTypeError("[negative] bool has no negative; use equal(x, false), or cast to an integer");
  return apply<negative_record>({}, x);
}

}  // namespace everyo::inline v1
