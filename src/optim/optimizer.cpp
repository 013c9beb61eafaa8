#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "everyo/logging.h"
#include "everyo/optim.h"

namespace everyo::inline v1 {

Optimizer::~Optimizer() = default;

void Optimizer::add_group(const std::vector<Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    if (!p.defined() || !p.body()->leaf)
      throw StateError(
          fmt::format("[{}] entry {} is not an EveryO tensor that requires a gradient; give slots: "
                      "model.parameters(), or tensors after set_requires_grad()",
                      name(), i));
    for (const Tensor& other : parameters_)
      if (other.body() == p.body())
        throw StateError(fmt::format("[{}] parameter '{}' {} is given twice; give each slot once", name(),
                                     p.body()->leaf->name, to_string(p.shape())));
    parameters_.push_back(p);
    slots_.emplace_back();
  }
  group_ends_.push_back(parameters_.size());
}

void Optimizer::check_not_empty() const {
  if (parameters_.empty())
    throw StateError(
        fmt::format("[{}] there are no parameters to train; give model.parameters(), of a model whose "
                    "visit(Visitor&) names its layers",
                    name()));
}

std::size_t Optimizer::known_group(std::size_t group) const {
  if (group >= group_ends_.size())
    throw ValueError(fmt::format("[{}] group {} of {}; groups count from 0", name(), group, group_ends_.size()));
  return group;
}

std::size_t Optimizer::group_of(std::size_t parameter) const noexcept {
  return static_cast<std::size_t>(std::ranges::upper_bound(group_ends_, parameter) - group_ends_.begin());
}

const Tensor& Optimizer::state_tensor(std::size_t parameter, std::size_t which, DType dtype) {
  Tensor& tensor = slots_[parameter].values[which];
  if (!tensor.defined()) {
    const Scoped<&Context::category> category(MemoryCategory::optimizer_state);
    tensor = Tensor::zeros(parameters_[parameter].shape(), dtype);
  }
  return tensor;
}

bool Optimizer::has_masters(std::size_t) const { return false; }

float* Optimizer::master_of(std::size_t parameter, std::size_t group) {
  const Tensor& p = parameters_[parameter];
  if (!is_half(p.dtype()) || !has_masters(group)) return nullptr;
  Tensor& master = slots_[parameter].master;
  if (!master.defined()) {
    const Scoped<&Context::category> category(MemoryCategory::optimizer_state);
    master = Tensor::zeros(p.shape(), float32);
  }
  return master.data<float>().data();
}

bool Optimizer::is_watched(std::size_t parameter) const noexcept {
  return is_half(parameters_[parameter].dtype()) && !slots_[parameter].said_stalled;
}

void Optimizer::note_stalls(std::size_t parameter, std::int64_t moved, std::int64_t stalled, float weight,
                            float change) {
  if (stalled <= moved / 2) return;
  slots_[parameter].said_stalled = true;
  const Tensor& p = parameters_[parameter];
  log(LogLevel::warning,
      fmt::format(
          "[{}] parameter '{}' {} hardly moves: a step left {} of the {} elements where they were that it was to "
          "change; changes of up to {:.3g} get lost in rounding weights of up to {:.3g} to {}; use "
          "master_weights, or keep the parameter in float32",
          name(), p.body()->leaf->name, to_string(p.shape()), stalled, moved, change, weight, name_of(p.dtype())));
}

void Optimizer::step() {
  for (const Tensor& p : parameters_) {
    const Leaf& leaf = *p.body()->leaf;
    if (leaf.parameter && leaf.owners == 0) [[unlikely]]
      throw StateError(
          fmt::format("[{}] parameter '{}' {} belongs to no module any more, so training it changes "
                      "nothing; make the optimizer anew after replacing a module",
                      name(), leaf.name, to_string(p.shape())));
    if (!leaf.grad.full) continue;
    if (leaf.grad.scale != 1) [[unlikely]]
      throw StateError(fmt::format("[{}] the gradient of '{}' is still multiplied by {}; unscale it before step()",
                                   name(), leaf.name, leaf.grad.scale));
    if (p.is_meta()) [[unlikely]]
      throw StateError(
          fmt::format("[{}] parameter '{}' has no values; restore or materialise it before step()", name(), leaf.name));
  }
  const NoGrad no_grad;
  const Scoped<&Context::meta> with_values(false);
  for (std::size_t group = 0; group < group_ends_.size(); ++group) update(group);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].body()->leaf->grad.full) continue;
    ++slots_[i].steps;
    parameters_[i].body()->storage->bump_version();
  }
  ++step_count_;
  ++context().step;
}

void Optimizer::zero_grad() const {
  for (const Tensor& p : parameters_) p.zero_grad();
}

void Optimizer::set_lr(double lr, std::size_t group) {
  if (!(lr > 0) || !std::isfinite(lr))
    throw ValueError(fmt::format("[{}] lr {} must be positive and finite", name(), lr));
  change_lr(known_group(group), lr);
}
void Optimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < group_ends_.size(); ++group) set_lr(lr, group);
}

}  // namespace everyo::inline v1
