#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/counts.h"
#include "everyo/optim.h"

namespace everyo::inline v1 {
namespace {
void check_steps(const char* name, std::int64_t steps) {
  if (steps < 1) throw ValueError(fmt::format("[{}] {} steps; it needs at least 1", name, steps));
}
}  // namespace

Schedule constant_schedule() {
  return [](std::int64_t) { return 1.0; };
}

Schedule step_schedule(std::int64_t step_size, double gamma) {
  check_steps("step_schedule", step_size);
  if (!(gamma > 0)) throw ValueError(fmt::format("[step_schedule] gamma {} must be positive", gamma));
  return [=](std::int64_t step) { return std::pow(gamma, static_cast<double>(step / step_size)); };
}

Schedule cosine_schedule(std::int64_t steps, double minimum) {
  check_steps("cosine_schedule", steps);
  if (!(minimum >= 0 && minimum <= 1))
    throw ValueError(fmt::format("[cosine_schedule] minimum {} must lie in [0, 1]", minimum));
  return [=](std::int64_t step) {
    const double way = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return minimum + (1 - minimum) * 0.5 * (1 + std::cos(std::numbers::pi * way));
  };
}

Schedule warm_up(std::int64_t steps, Schedule after) {
  check_steps("warm_up", steps);
  if (!after) throw ValueError("[warm_up] there is no schedule for after it; give one, such as constant_schedule()");
  return [steps, after = std::move(after)](std::int64_t step) {
    return step < steps ? static_cast<double>(step + 1) / static_cast<double>(steps) : after(step - steps);
  };
}

Scheduler::Scheduler(Optimizer& optimizer, Schedule schedule) : optimizer_(optimizer), schedule_(std::move(schedule)) {
  if (!schedule_) throw ValueError("[Scheduler] there is no schedule; give one, such as constant_schedule()");
  for (std::size_t group = 0; group < optimizer.group_count(); ++group) base_.push_back(optimizer.lr(group));
  apply();
}

void Scheduler::step() {
  ++step_;
  apply();
}

void Scheduler::apply() {
  // A schedule may end at 0, an optimizer's rate may not.
  constexpr double smallest = 1e-30;
  const double factor = schedule_(step_);
  for (std::size_t group = 0; group < base_.size(); ++group)
    optimizer_.set_lr(std::max(base_[group] * factor, smallest), group);
}

StateTree Scheduler::state() const {
  StateTree tree;
  tree["step"] = step_;
  for (std::size_t group = 0; group < base_.size(); ++group) tree["lr"][std::to_string(group)] = base_[group];
  return tree;
}

void Scheduler::load(const StateTree& state) {
  const std::int64_t step = state.get<std::int64_t>("step");
  const auto& rates = state.at("lr").entries();
  if (!base::is_count(step))
    throw StateError(
        fmt::format("[Scheduler] the state's step is {}; a count is from 0 to {}", step, base::most_counted));
  if (rates.size() != base_.size())
    throw StateError(
        fmt::format("[Scheduler] the state has {} groups, the optimizer {} groups", rates.size(), base_.size()));
  std::vector<double> base;
  for (std::size_t group = 0; group < base_.size(); ++group)
    base.push_back(state.at("lr").get<double>(std::to_string(group)));
  const double factor = schedule_(step);
  for (const double rate : base)
    if (!(rate > 0) || !std::isfinite(rate) || !std::isfinite(rate * factor))
      throw StateError(
          fmt::format("[Scheduler] the state has learning rate {}, which the schedule makes {} at step {}; "
                      "rates are positive and finite",
                      rate, rate * factor, step));
  base_ = std::move(base);
  step_ = step;
  apply();
}

}  // namespace everyo::inline v1
