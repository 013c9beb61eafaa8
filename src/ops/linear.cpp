#include <fmt/format.h>

#include "everyo/ops.h"
#include "kernels/unary.h"
#include "ops/elementwise.h"
#include "ops/product.h"

// linear: activation(x W + b) as one op.
//   x [.., D] weight [D, K] bias [K] -> y [.., K]; N rows stand for all the leading dimensions of x
// Halves are rounded where the separate ops would round: after the product, the bias and the activation.
namespace everyo::inline v1 {
namespace {

using kernels::MatmulProblem;
using kernels::Unary;

struct LinearAttrs {
  Activation activation = Activation::none;  // or relu, sigmoid, tanh: those whose gradient is written in the output
};
Attributes describe(const LinearAttrs& a) { return {{"activation", std::string(name_of(a.activation))}}; }

Unary unary_of(Activation activation) {
  switch (activation) {
    case Activation::sigmoid: return Unary::sigmoid;
    case Activation::tanh: return Unary::tanh;
    default: return Unary::relu;
  }
}

[[noreturn]] void refuse(const Tensor& x, const Tensor& weight, std::string_view what) {
  throw ShapeError(fmt::format("[linear] x {}, weight {}: {}", to_string(x.shape()), to_string(weight.shape()), what));
}

// `bias` may be null.
void check_shapes(const Tensor& x, const Tensor& weight, const Tensor* bias) {
  if (weight.rank() != 2) refuse(x, weight, "the weight must have two dimensions, (in_features, out_features)");
  const std::int64_t d = weight.shape()[0], k = weight.shape()[1];
  if (x.rank() == 0 || x.shape()[-1] != d) {
    refuse(x, weight, fmt::format("the last dimension of x must be {}, the weight's in_features", d));
  }
  if (bias != nullptr && bias->shape() != Shape{k}) {
    refuse(x, weight, fmt::format("the bias {} must be ({},), the weight's out_features", to_string(bias->shape()), k));
  }
}

Specs infer(const Inputs& in, const LinearAttrs&) {
  const Tensor &x = in[0], &weight = in[1];
  check_shapes(x, weight, in.size() == 3 ? &in[2] : nullptr);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype() != x.dtype() || !is_floating(x.dtype())) {
      throw DTypeError(fmt::format("[linear] x is {}, {} is {}; all must have one floating dtype; cast() them first",
                                   name_of(x.dtype()), i == 2 ? "bias" : "weight", name_of(in[i].dtype())));
    }
  }
  Shape shape = x.shape();
  shape.set(-1, weight.shape()[1]);
  return Spec{x.dtype(), shape};
}

// N: the product of the leading dimensions.
std::int64_t rows_of(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t i = 0; i + 1 < shape.rank(); ++i) n *= shape[i];
  return n;
}

void forward(const Call& call, const LinearAttrs& attrs) {
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const bool relu = attrs.activation == Activation::relu;
  multiply_matrices({rows_of(x.shape()), weight.shape()[1], weight.shape()[0]}, x, weight, y,
                    call.in.size() == 3 ? &call.in[2] : nullptr, relu);
  if (attrs.activation != Activation::none && !relu) {
    kernels::unary_forward(unary_of(attrs.activation), y.dtype(), y.bytes(), y.bytes(), y.size());
  }
}

// dz [.., K]: the gradient before the activation.
void give_gradients(Backward& b, const Tensor& dz) {
  const std::int64_t n = rows_of(dz.shape()), k = dz.shape()[-1];
  if (b.needs(0)) {
    const Tensor& weight = b.input(1);
    Spec x = dz.spec();
    x.shape.set(-1, weight.shape()[0]);
    give_product(b, 0, x, {n, weight.shape()[0], k, false, true}, dz, weight);
  }
  if (b.needs(1)) {
    const Tensor& x = b.input(0);
    const std::int64_t d = x.shape()[-1];
    give_weight_product(b, 1, {dz.dtype(), {d, k}}, {d, k, n, true, false}, x, dz);
  }
  if (b.inputs() == 3 && b.needs(2)) give_column_sum(b, 2, dz);
}

void backward(Backward& b, const LinearAttrs& attrs) {
  if (attrs.activation == Activation::none) return give_gradients(b, b.grad());
  const Tensor& y = b.output();
  const bool in_place = b.owns_grad();
  const Tensor grad = b.take_grad();
  const Tensor dz = in_place ? grad : Tensor::empty(y.spec());
  kernels::unary_backward(unary_of(attrs.activation), y.dtype(), y.bytes(), grad.bytes(), dz.bytes(), y.size());
  give_gradients(b, dz);
}

Cost cost(const Inputs& in, const Specs& out, const LinearAttrs& attrs) {
  const auto elements = static_cast<double>(out[0].shape.elements());
  auto bytes = static_cast<double>(out[0].bytes());
  for (std::size_t i = 0; i < in.size(); ++i) bytes += static_cast<double>(in[i].spec().bytes());
  const int steps = (in.size() == 3 ? 1 : 0) + (attrs.activation != Activation::none ? 1 : 0);
  return {.flops = elements * (2 * static_cast<double>(in[1].shape()[0]) + steps), .bytes = bytes};
}

onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const LinearAttrs& attrs) {
  Spec spec = in[0].spec;
  spec.shape.set(-1, in[1].spec.shape[1]);
  onnx::Value y = g.node("MatMul", {in[0], in[1]}, spec);
  if (in.size() == 3) y = g.node("Add", {y, in[2]}, spec);
  switch (attrs.activation) {
    case Activation::relu: return {g.node("Relu", {y}, spec)};
    case Activation::sigmoid: return {g.node("Sigmoid", {y}, spec)};
    case Activation::tanh: return {g.node("Tanh", {y}, spec)};
    default: return {y};
  }
}

Tensor composed(const Inputs& in, const LinearAttrs& attrs) {
  const Tensor z = matmul(in[0], in[1]);
  return activate(in.size() == 3 ? add(z, in[2]) : z, attrs.activation);
}

// Two records, since only the one with an activation keeps its output for backward.
constexpr Record<LinearAttrs> record_of(const char* name, InputMask output_kept_for) {
  return {.name = name,
          .policy = CastPolicy::low,
          .saves = {.inputs = {for_grad_of(1), for_grad_of(0)}, .outputs = {output_kept_for}},
          .infer = infer,
          .forward = forward,
          .backward = backward,
          .cost = cost,
          .onnx = lower,
          .composed = composed};
}
constexpr Record<LinearAttrs> linear_record = record_of("linear", 0);
constexpr Record<LinearAttrs> linear_activation_record = record_of("linear_activation", for_every_grad);

}  // namespace

extern const Op *const linear_op, *const linear_activation_op;
constinit const Op* const linear_op = &op_of<linear_record>;
constinit const Op* const linear_activation_op = &op_of<linear_activation_record>;

namespace {
// Operands of any dtypes.
Tensor linear_of(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  const bool same =
      x.defined() && weight.defined() && x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype());
  if (!same && x.defined() && weight.defined()) [[unlikely]] {
    check_shapes(x, weight, bias.defined() ? &bias : nullptr);
    const Tensor z = matmul(x, weight);  // each step promotes
    return activate(bias.defined() ? add(z, bias) : z, activation);
  }
  switch (activation) {
    case Activation::relu:
    case Activation::sigmoid:
    case Activation::tanh:
      return bias.defined() ? apply<linear_activation_record>({activation}, x, weight, bias)
                            : apply<linear_activation_record>({activation}, x, weight);
    default: {  // gelu and silu need the sum they are taken of, so that is an op's output of its own
      const Tensor z = bias.defined() ? apply<linear_record>({}, x, weight, bias) : apply<linear_record>({}, x, weight);
      return activate(z, activation);
    }
  }
}
}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  if (context().autocast) [[unlikely]]
    return linear_of(as_low(x, weight), as_low(weight, x), as_low(bias, weight), activation);
  return linear_of(x, weight, bias, activation);
}

}  // namespace everyo::inline v1
