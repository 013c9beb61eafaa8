#include <fmt/format.h>

#include "ops/elementwise.h"

// exp, log, sqrt, abs, clip, power: x [..] -> y [..]. Kernels and conventions: kernels/unary.h.
namespace everyo::inline v1 {
namespace {

using kernels::Unary;

struct ClipAttrs {
  double low, high;
};
Attributes describe(const ClipAttrs& a) { return {{"low", a.low}, {"high", a.high}}; }
constexpr kernels::UnaryParameters parameters_of(const ClipAttrs& a) noexcept { return {a.low, a.high}; }
struct PowerAttrs {
  double exponent;
};
Attributes describe(const PowerAttrs& a) { return {{"exponent", a.exponent}}; }
constexpr kernels::UnaryParameters parameters_of(const PowerAttrs& a) noexcept { return {a.exponent, 0}; }

constexpr Record<> exp_record = unary_record<Unary::exp, NoAttrs>(
    "exp", CastPolicy::keep32, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Exp", {v[0]}, v[0].spec)};
    });
constexpr Record<> log_record = unary_record<Unary::log, NoAttrs>(
    "log", CastPolicy::keep32, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Log", {v[0]}, v[0].spec)};
    });
constexpr Record<> sqrt_record = unary_record<Unary::sqrt, NoAttrs>(
    "sqrt", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Sqrt", {v[0]}, v[0].spec)};
    });
constexpr Record<> abs_record = unary_record<Unary::absolute, NoAttrs>(
    "abs", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Abs", {v[0]}, v[0].spec)};
    });
constexpr Record<ClipAttrs> clip_record = unary_record<Unary::clip, ClipAttrs>(
    "clip", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const ClipAttrs& a) -> onnx::Values {
      const Spec& spec = v[0].spec;
      return {g.node(
          "Clip", {v[0], g.constant(Tensor::scalar(a.low, spec.dtype)), g.constant(Tensor::scalar(a.high, spec.dtype))},
          spec)};
    });
constexpr Record<PowerAttrs> power_record = unary_record<Unary::power, PowerAttrs>(
    "power", CastPolicy::follow, [](onnx::Graph& g, const onnx::Values& v, const PowerAttrs& a) -> onnx::Values {
      return {g.node("Pow", {v[0], g.constant(Tensor::scalar(a.exponent, v[0].spec.dtype))}, v[0].spec)};
    });

}  // namespace

extern const Op *const exp_op, *const log_op, *const sqrt_op, *const abs_op, *const clip_op, *const power_op;
constinit const Op* const exp_op = &op_of<exp_record>;
constinit const Op* const log_op = &op_of<log_record>;
constinit const Op* const sqrt_op = &op_of<sqrt_record>;
constinit const Op* const abs_op = &op_of<abs_record>;
constinit const Op* const clip_op = &op_of<clip_record>;
constinit const Op* const power_op = &op_of<power_record>;

Tensor exp(const Tensor& x) { return apply<exp_record>({}, as_float32_under_autocast(x)); }
Tensor log(const Tensor& x) { return apply<log_record>({}, as_float32_under_autocast(x)); }
Tensor sqrt(const Tensor& x) { return apply<sqrt_record>({}, as_floating(x)); }
Tensor abs(const Tensor& x) { return x.dtype() == boolean ? x : apply<abs_record>({}, x); }
Tensor clip(const Tensor& x, double low, double high) {
  if (!(low <= high)) throw ShapeError(fmt::format("[clip] low is {}, high is {}; need low <= high", low, high));
  return apply<clip_record>({low, high}, x.dtype() == boolean ? cast(x, int64) : x);
}
Tensor power(const Tensor& x, double exponent) { return apply<power_record>({exponent}, as_floating(x)); }

}  // namespace everyo::inline v1
