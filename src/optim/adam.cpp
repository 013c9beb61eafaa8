#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "everyo/logging.h"
#include "everyo/optim.h"
#include "kernels/optimizer.h"
#include "optim/options.h"
#include "optim/stall_watch.h"
#include "tensor/pool_allocator.h"

namespace everyo::inline v1 {
namespace {
void check(const AdamOptions& o) {
  check_common("Adam", o.lr, o.weight_decay, o.state_dtype);
  if (!(o.beta1 >= 0 && o.beta1 < 1)) throw ValueError(fmt::format("[Adam] beta1 {} must lie in [0, 1)", o.beta1));
  if (!(o.beta2 >= 0 && o.beta2 < 1)) throw ValueError(fmt::format("[Adam] beta2 {} must lie in [0, 1)", o.beta2));
  // In float32 a smaller one would be 0 or lose digits, and 0 / (0 + eps) is what a zero gradient comes to.
  if (!(o.eps >= static_cast<double>(std::numeric_limits<float>::min())) || !std::isfinite(o.eps))
    throw ValueError(fmt::format("[Adam] eps {} must be positive: at least 1.2e-38, and finite", o.eps));
  if (o.state_dtype == bfloat16 && 1 - o.beta2 <= 0x1p-8)
    log(LogLevel::warning,
        fmt::format(
            "[Adam] beta2 is {} and moments are bfloat16: the mean of squares falls by {:.2g} of itself a step at "
            "most, which rounding to bfloat16 takes back, so it stays at its height; take a beta2 of 0.99, or "
            "float32 moments",
            o.beta2, 1 - o.beta2));
}
AdamOptions decoupled(const AdamWOptions& o) {
  return {.lr = o.lr,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .amsgrad = o.amsgrad,
          .decoupled = true,
          .state_dtype = o.state_dtype,
          .master_weights = o.master_weights};
}
std::vector<Adam::Group> decoupled(const std::vector<AdamW::Group>& groups) {
  std::vector<Adam::Group> result;
  for (const AdamW::Group& group : groups) result.push_back({group.parameters, decoupled(group.options)});
  return result;
}
}  // namespace

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options)
    : Adam(std::vector<Group>{{std::move(parameters), options}}) {}

Adam::Adam(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    check(group.options);
    add_group(group.parameters);
    options_.push_back(group.options);
  }
  check_not_empty();
}

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options) : Adam(std::move(parameters), decoupled(options)) {}

AdamW::AdamW(const std::vector<Group>& groups) : Adam(decoupled(groups)) {}

std::span<const char* const> Adam::state_names() const {
  static constexpr std::array names{"mean", "square", "largest"};
  return names;
}

void Adam::update(std::size_t group) {
  const AdamOptions& o = options_[group];
  PoolVector<kernels::AdamTask> tasks;
  const std::size_t begin = group_begin(group);
  tasks.reserve(group_end(group) - begin);
  StallWatch watch(group_end(group) - begin);
  for (std::size_t i = begin; i < group_end(group); ++i) {
    const Tensor& p = parameters_[i];
    const GradSlot& grad = p.body()->leaf->grad;
    if (!grad.full) continue;
    const auto t = static_cast<double>(slots_[i].steps + 1);
    const Tensor &mean = state_tensor(i, 0, o.state_dtype), &square = state_tensor(i, 1, mean.dtype());
    tasks.push_back({.weights = watch.weights(p, i - begin, master_of(i, group), is_watched(i)),
                     .state_dtype = mean.dtype(),
                     .gradient = grad.value.bytes(),
                     .mean = mean.bytes(),
                     .square = square.bytes(),
                     .largest = o.amsgrad ? state_tensor(i, 2, mean.dtype()).bytes() : nullptr,
                     .step_size = o.lr / (1 - std::pow(o.beta1, t)),
                     .square_factor = 1 / std::sqrt(1 - std::pow(o.beta2, t))});
  }
  kernels::adam(tasks, {.beta1 = o.beta1,
                        .beta2 = o.beta2,
                        .eps = o.eps,
                        .weight_decay = o.decoupled ? 0 : o.weight_decay,
                        .decay_factor = o.decoupled ? 1 - o.lr * o.weight_decay : 1});
  watch.each(
      [&](std::size_t i, const kernels::Stalls& s) { note_stalls(begin + i, s.moved, s.stalled, s.weight, s.change); });
}

}  // namespace everyo::inline v1
