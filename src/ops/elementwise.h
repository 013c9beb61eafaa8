#pragma once
#include <string_view>

#include "everyo/ops.h"
#include "kernels/unary.h"

// What the records of elementwise ops share.
namespace everyo::inline v1 {

/// NumPy's broadcast of two shapes. Throws ShapeError "[op] shapes … do not broadcast …".
Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b);

/// Sum of `gradient` over what was broadcast from `shape`, [shape], given as input i's gradient; straight into a
/// leaf's memory where that is possible.
void give_reduced(Backward& b, std::size_t input, Tensor gradient, const Shape& shape);

/// x in float32 when its dtype is not floating: exp of integers is a float.
Tensor as_floating(const Tensor& x);
/// x in the autocast dtype, unless neither x nor what it is multiplied with is floating: for the operands of ops whose
/// policy is low, when autocast is on.
Tensor as_low(const Tensor& x, const Tensor& with);
/// x in float32 when its dtype is not floating, or a half and autocast is on: for the ops whose policy is keep32.
Tensor as_float32_under_autocast(const Tensor& x);

/// Throws DTypeError unless x has a floating dtype.
void require_floating(std::string_view op, const Tensor& x);

/// One read of each input, one write of each output, and so many operations for each element of the output.
Cost elementwise_cost(const Inputs& in, const Specs& out, double operations);

constexpr kernels::UnaryParameters parameters_of(const NoAttrs&) noexcept { return {}; }

/// Record of a function of one element with a kernel. A: its attributes, with a parameters_of(A).
template <kernels::Unary function, class A, class Lowering>
constexpr Record<A> unary_record(const char* name, CastPolicy policy, Lowering onnx) {
  Saves saves;
  if (kernels::saves_output(function)) {
    saves.outputs[0] = for_grad_of(0);
  } else if (!kernels::saves_nothing(function)) {
    saves.inputs[0] = for_grad_of(0);
  }
  return {.name = name,
          .policy = policy,
          .saves = saves,
          .infer = [](const Inputs& in, const A&) -> Specs { return in[0].spec(); },
          .forward =
              [](const Call& c, const A& attrs) {
                const Tensor &x = c.in[0], &y = c.out[0];
                kernels::unary_forward(function, x.dtype(), x.bytes(), y.bytes(), x.size(), parameters_of(attrs));
              },
          .backward =
              [](Backward& b, const A& attrs) {
                const bool owned = b.owns_grad();
                const Tensor grad = b.take_grad();
                const Tensor grad_x = owned ? grad : Tensor::empty(grad.spec());
                const std::byte* saved = nullptr;
                if constexpr (kernels::saves_output(function)) {
                  saved = b.output().bytes();
                } else if constexpr (!kernels::saves_nothing(function)) {
                  saved = b.input(0).bytes();
                }
                kernels::unary_backward(function, grad.dtype(), saved, grad.bytes(), grad_x.bytes(), grad.size(),
                                        parameters_of(attrs));
                b.give(0, grad_x);
              },
          .cost = [](const Inputs& in, const Specs& out,
                     const A&) { return elementwise_cost(in, out, kernels::operations(function)); },
          .onnx = onnx,
          .composed = no("primitive")};
}
}  // namespace everyo::inline v1
