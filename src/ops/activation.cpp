#include <numbers>

#include "ops/elementwise.h"
#include "ops/lowering.h"

// relu, sigmoid, tanh, gelu, silu: x [..] -> y [..]. Kernels and conventions: kernels/unary.h.
namespace everyo::inline v1 {
namespace {

using kernels::Unary;

constexpr Record<> relu_record = unary_record<Unary::relu, NoAttrs>(
    "relu", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      const Spec spec = v[0].spec;
      if (spec.dtype == uint8) return {g.node("Identity", {v[0]}, spec)};
      // Relu of integers came with opset 14, and the runtime's lacks int64.
      if (!is_floating(spec.dtype)) return {g.node("Max", {v[0], g.constant(Tensor::scalar(0, spec.dtype))}, spec)};
      return {g.node("Relu", {v[0]}, spec)};
    });
constexpr Record<> sigmoid_record = unary_record<Unary::sigmoid, NoAttrs>(
    "sigmoid", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Sigmoid", {v[0]}, v[0].spec)};
    });
constexpr Record<> tanh_record = unary_record<Unary::tanh, NoAttrs>(
    "tanh", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Tanh", {v[0]}, v[0].spec)};
    });

// ONNX has Gelu from opset 20 on: x / 2 (1 + erf(x / sqrt(2))).
onnx::Values lower_gelu(onnx::Graph& g, const onnx::Values& v, const NoAttrs&) {
  const Spec spec = v[0].spec;
  const auto number = [&](double value) { return g.constant(Tensor::scalar(value, spec.dtype)); };
  const onnx::Value erf = g.node("Erf", {g.node("Mul", {v[0], number(1 / std::numbers::sqrt2)}, spec)}, spec);
  const onnx::Value half = g.node("Mul", {v[0], number(0.5)}, spec);
  return {g.node("Mul", {half, g.node("Add", {erf, number(1)}, spec)}, spec)};
}

constexpr Record<> gelu_record = unary_record<Unary::gelu, NoAttrs>("gelu", CastPolicy::follow, lower_gelu);
constexpr Record<> silu_record = unary_record<Unary::silu, NoAttrs>(
    "silu", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Mul", {v[0], g.node("Sigmoid", {v[0]}, v[0].spec)}, v[0].spec)};
    });

}  // namespace

extern const Op *const relu_op, *const sigmoid_op, *const tanh_op, *const gelu_op, *const silu_op;
constinit const Op* const relu_op = &op_of<relu_record>;
constinit const Op* const sigmoid_op = &op_of<sigmoid_record>;
constinit const Op* const tanh_op = &op_of<tanh_record>;
constinit const Op* const gelu_op = &op_of<gelu_record>;
constinit const Op* const silu_op = &op_of<silu_record>;

Tensor relu(const Tensor& x) { return apply<relu_record>({}, x.dtype() == boolean ? cast(x, int64) : x); }
Tensor sigmoid(const Tensor& x) { return apply<sigmoid_record>({}, as_floating(x)); }
Tensor tanh(const Tensor& x) { return apply<tanh_record>({}, as_floating(x)); }
Tensor gelu(const Tensor& x) { return apply<gelu_record>({}, as_floating(x)); }
Tensor silu(const Tensor& x) { return apply<silu_record>({}, as_floating(x)); }

std::string_view name_of(Activation activation) noexcept {
  switch (activation) {
    case Activation::none: return "none";
    case Activation::relu: return "relu";
    case Activation::sigmoid: return "sigmoid";
    case Activation::tanh: return "tanh";
    case Activation::gelu: return "gelu";
    case Activation::silu: break;
  }
  return "silu";
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return relu(x);
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return tanh(x);
    case Activation::gelu: return gelu(x);
    case Activation::silu: break;
  }
  return silu(x);
}

}  // namespace everyo::inline v1
