#include "kernels/losses.h"

#include <fmt/format.h>

#include "kernels/index.h"
#include "ops/elementwise.h"

// Losses of a prediction x [..] and a target t [..] of the same shape: a scalar (mean, sum) or one loss an element.
namespace everyo::inline v1 {
namespace {

using kernels::PairLoss;

struct LossAttrs {
  Reduction reduction;
};
Attributes describe(const LossAttrs& a) { return {{"reduction", std::string(name_of(a.reduction))}}; }

constexpr const char* name_of_loss(PairLoss loss) {
  switch (loss) {
    case PairLoss::absolute: return "mae_loss";
    case PairLoss::logistic: return "bce_with_logits_loss";
    case PairLoss::binary_probability: return "bce_loss";
    case PairLoss::squared: break;
  }
  return "mse_loss";
}

// Operations an element, forward: exponentials and logarithms count as one.
constexpr double operations_of(PairLoss loss) {
  return loss == PairLoss::squared || loss == PairLoss::absolute ? 3 : 8;
}

void check_probabilities(const Tensor& x) {
  const std::int64_t bad = kernels::find_bad_probability(x.dtype(), x.bytes(), x.size());
  if (bad < 0) return;
  const double value = x.to_vector()[static_cast<std::size_t>(bad)];
  throw ShapeError(
      fmt::format("[bce_loss] element {} is {}; it takes probabilities in [0, 1]; apply sigmoid first, or "
                  "use bce_with_logits_loss",
                  bad, value));
}

template <PairLoss loss>
Specs infer(const Inputs& in, const LossAttrs& a) {
  const Tensor &x = in[0], &t = in[1];
  if (x.shape() != t.shape())
    throw ShapeError(fmt::format("[{}] prediction {} and target {} must have the same shape; reshape one of them",
                                 name_of_loss(loss), to_string(x.shape()), to_string(t.shape())));
  if (x.dtype() != t.dtype())
    throw DTypeError(fmt::format("[{}] prediction is {}, target {}; cast one of them", name_of_loss(loss),
                                 name_of(x.dtype()), name_of(t.dtype())));
  require_floating(name_of_loss(loss), x);
  return Spec{x.dtype(), a.reduction == Reduction::none ? x.shape() : Shape{}};
}

template <PairLoss loss>
void forward(const Call& c, const LossAttrs& a) {
  const Tensor &x = c.in[0], &y = c.out[0];
  if constexpr (loss == PairLoss::binary_probability) check_probabilities(x);
  const kernels::LossPair pair{x.dtype(), x.bytes(), c.in[1].bytes(), x.size()};
  if (a.reduction == Reduction::none) return kernels::loss_values(loss, pair, y.bytes());
  const double sum = kernels::loss_sum(loss, pair);
  kernels::fill(y.dtype(), y.bytes(), 1, a.reduction == Reduction::mean ? sum / static_cast<double>(x.size()) : sum);
}

template <PairLoss loss>
void backward(Backward& b, const LossAttrs& a) {
  const Tensor &x = b.input(0), &t = b.input(1), &g = b.grad();
  const Tensor grad_x = b.needs(0) ? Tensor::empty(x.spec()) : Tensor();
  const Tensor grad_t = b.needs(1) ? Tensor::empty(t.spec()) : Tensor();
  kernels::LossGradient gradient{.grad_x = b.needs(0) ? grad_x.bytes() : nullptr,
                                 .grad_target = b.needs(1) ? grad_t.bytes() : nullptr};
  if (a.reduction == Reduction::none)
    gradient.each = g.bytes();
  else
    gradient.scale = g.item() / (a.reduction == Reduction::mean ? static_cast<double>(x.size()) : 1);
  kernels::loss_backward(loss, {x.dtype(), x.bytes(), t.bytes(), x.size()}, gradient);
  if (b.needs(0)) b.give(0, grad_x);
  if (b.needs(1)) b.give(1, grad_t);
}

template <PairLoss loss>
constexpr Record<LossAttrs> loss_record() {
  return {.name = name_of_loss(loss),
          .policy = CastPolicy::keep32,
          .saves = {.inputs = {for_grad_of(0, 1), for_grad_of(0, 1)}},
          .infer = infer<loss>,
          .forward = forward<loss>,
          .backward = backward<loss>,
          .cost = [](const Inputs& in, const Specs& out, const LossAttrs&) -> Cost {
            const Cost read = elementwise_cost(in, out, 0);
            return {.flops = operations_of(loss) * static_cast<double>(in[0].size()), .bytes = read.bytes};
          },
          .onnx = no("a loss belongs to training; export the model's output"),
          .composed = no("primitive: its sum is over losses that were never rounded")};
}
constexpr auto mse_record = loss_record<PairLoss::squared>();
constexpr auto mae_record = loss_record<PairLoss::absolute>();
constexpr auto bce_with_logits_record = loss_record<PairLoss::logistic>();
constexpr auto bce_record = loss_record<PairLoss::binary_probability>();

// Both operands in the dtype they promote to, a floating one; float32 under autocast.
template <const auto& record>
Tensor loss_of(const Tensor& x, const Tensor& t, Reduction reduction) {
  const bool plain = x.dtype() == t.dtype() && is_floating(x.dtype()) && !(is_half(x.dtype()) && context().autocast);
  if (plain) [[likely]]
    return apply<record>({reduction}, x, t);
  const DType dtype = promote(x.dtype(), t.dtype());
  const DType wide = !is_floating(dtype) || (is_half(dtype) && context().autocast) ? float32 : dtype;
  return apply<record>({reduction}, cast(x, wide), cast(t, wide));
}

}  // namespace

extern const Op *const mse_loss_op, *const mae_loss_op, *const bce_with_logits_loss_op, *const bce_loss_op;
constinit const Op* const mse_loss_op = &op_of<mse_record>;
constinit const Op* const mae_loss_op = &op_of<mae_record>;
constinit const Op* const bce_with_logits_loss_op = &op_of<bce_with_logits_record>;
constinit const Op* const bce_loss_op = &op_of<bce_record>;

Reduction reduction_of(std::string_view name) {
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  if (name == "none") return Reduction::none;
  throw ValueError(fmt::format("[reduction_of] Unknown reduction '{}'; it is mean, sum or none", name));
}

std::string_view name_of(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::mean: return "mean";
    case Reduction::sum: return "sum";
    case Reduction::none: break;
  }
  return "none";
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  return loss_of<mse_record>(prediction, target, reduction);
}
Tensor mae_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  return loss_of<mae_record>(prediction, target, reduction);
}
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, Reduction reduction) {
  return loss_of<bce_with_logits_record>(logits, target, reduction);
}
Tensor bce_loss(const Tensor& probability, const Tensor& target, Reduction reduction) {
  return loss_of<bce_record>(probability, target, reduction);
}

}  // namespace everyo::inline v1
