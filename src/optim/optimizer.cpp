#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

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

StateTree Optimizer::state() const {
  StateTree tree;
  tree["optimizer"] = name();
  tree["step_count"] = step_count_;
  for (std::size_t group = 0; group < group_ends_.size(); ++group)
    tree["groups"][std::to_string(group)]["lr"] = lr(group);
  const auto names = state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    StateTree& entry = tree["parameters"][std::to_string(i)];
    entry["name"] = parameters_[i].body()->leaf->name;
    entry["steps"] = slots_[i].steps;
    for (std::size_t k = 0; k < names.size(); ++k) {
      const Tensor& value = slots_[i].values[k];
      if (!value.defined()) continue;
      const auto owner = std::make_shared<const Tensor>(value.copy());
      entry[names[k]] = StateArray{value.spec(), {owner->bytes(), value.spec().bytes()}, owner, {}};
    }
  }
  return tree;
}

void Optimizer::load(const StateTree& state) {
  const auto refuse = [this](const std::string& what) {
    throw StateError(
        fmt::format("[{}] the state does not fit: {}; load what the same optimizer over the same "
                    "parameters has saved",
                    name(), what));
  };
  if (state.get<std::string>("optimizer") != name())
    refuse(fmt::format("it is of {}", state.get<std::string>("optimizer")));
  const auto& entries = state.at("parameters").entries();
  if (entries.size() != parameters_.size())
    refuse(fmt::format("it has {} parameters, this optimizer {}", entries.size(), parameters_.size()));
  const auto& groups = state.at("groups").entries();
  if (groups.size() != group_ends_.size())
    refuse(fmt::format("it has {} groups, this optimizer {}", groups.size(), group_ends_.size()));
  // Everything is read and checked before anything changes.
  std::vector<double> rates;
  for (std::size_t group = 0; group < group_ends_.size(); ++group)
    rates.push_back(state.at("groups").at(std::to_string(group)).get<double>("lr"));
  for (const double rate : rates)
    if (!(rate > 0) || !std::isfinite(rate)) refuse(fmt::format("a learning rate is {}", rate));
  const Scoped<&Context::meta> with_values(false);
  const auto names = state_names();
  std::vector<Slot> slots(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const StateTree& entry = state.at("parameters").at(std::to_string(i));
    const std::string& saved_name = entry.get<std::string>("name");
    const std::string& own_name = parameters_[i].body()->leaf->name;
    if (!saved_name.empty() && !own_name.empty() && saved_name != own_name)
      refuse(fmt::format("parameter {} is '{}' there, '{}' here", i, saved_name, own_name));
    slots[i].steps = entry.get<std::int64_t>("steps");
    if (slots[i].steps < 0) refuse(fmt::format("parameter {} has made {} steps", i, slots[i].steps));
    std::optional<DType> dtype;
    for (std::size_t k = 0; k < names.size(); ++k) {
      if (!entry.contains(names[k])) continue;
      const StateArray& array = entry.get<StateArray>(names[k]);
      array.check();
      if (array.shard) refuse(fmt::format("{} of parameter {} is a shard; put the shards together first", names[k], i));
      if (array.spec.shape != parameters_[i].shape())
        refuse(fmt::format("{} of parameter {} has shape {}, the parameter {}", names[k], i,
                           to_string(array.spec.shape), to_string(parameters_[i].shape())));
      if (array.spec.dtype != float32 && array.spec.dtype != float64)
        refuse(fmt::format("{} of parameter {} is {}; state is float32 or float64", names[k], i,
                           name_of(array.spec.dtype)));
      if (dtype && *dtype != array.spec.dtype)
        refuse(fmt::format("{} of parameter {} is {}, its other state {}", names[k], i, name_of(array.spec.dtype),
                           name_of(*dtype)));
      dtype = array.spec.dtype;
      const Scoped<&Context::category> category(MemoryCategory::optimizer_state);
      slots[i].values[k] = Tensor::empty(array.spec);
      std::ranges::copy(array.bytes, slots[i].values[k].bytes());
    }
  }
  const std::int64_t steps = state.get<std::int64_t>("step_count");
  if (steps < 0) refuse(fmt::format("it has made {} steps", steps));
  for (std::size_t group = 0; group < rates.size(); ++group) change_lr(group, rates[group]);
  slots_ = std::move(slots);
  step_count_ = steps;
}

}  // namespace everyo::inline v1
