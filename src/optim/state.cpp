#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "base/counts.h"
#include "everyo/optim.h"
#include "optim/options.h"

// An optimizer's state, and the way back.
namespace everyo::inline v1 {
namespace {

constexpr const char* master_key = "master";

StateArray array_of(const Tensor& value) {
  const auto owner = std::make_shared<const Tensor>(value.copy());
  return {value.spec(), {owner->bytes(), value.spec().bytes()}, owner, {}};
}

// Throws that the state does not fit, and why.
using Refuse = std::function<void(const std::string& why)>;

void check_steps(std::int64_t steps, const std::string& whose, const Refuse& refuse) {
  if (!base::is_count(steps))
    refuse(fmt::format("{} has made {} steps; a count is from 0 to {}", whose, steps, base::most_counted));
}

// What the entry of parameter i has under a key.
Tensor read_array(const StateTree& entry, const char* key, std::size_t i, const Tensor& parameter,
                  const Refuse& refuse) {
  const StateArray& array = entry.get<StateArray>(key);
  array.check();
  if (array.shard) refuse(fmt::format("{} of parameter {} is a shard; put the shards together first", key, i));
  if (array.spec.shape != parameter.shape())
    refuse(fmt::format("{} of parameter {} has shape {}, the parameter {}", key, i, to_string(array.spec.shape),
                       to_string(parameter.shape())));
  const Scoped<&Context::category> category(MemoryCategory::optimizer_state);
  const Tensor value = Tensor::empty(array.spec);
  std::ranges::copy(array.bytes, value.bytes());
  return value;
}

// Moments are kept and computed together, in one dtype.
void check_moments(std::span<const Tensor> values, std::span<const char* const> names, std::size_t i,
                   const Refuse& refuse) {
  std::optional<DType> dtype;
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (!values[k].defined()) continue;
    const DType own = values[k].dtype();
    if (!is_state_dtype(own))
      refuse(fmt::format("{} of parameter {} is {}; state is {}", names[k], i, name_of(own), state_dtypes));
    if (dtype && *dtype != own)
      refuse(fmt::format("{} of parameter {} is {}, its other state {}", names[k], i, name_of(own), name_of(*dtype)));
    dtype = own;
  }
  if (names.size() > 1 && values[0].defined() != values[1].defined())
    refuse(fmt::format("parameter {} has {} without {}", i, names[values[0].defined() ? 0 : 1],
                       names[values[0].defined() ? 1 : 0]));
  for (std::size_t k = 2; k < names.size(); ++k)
    if (values[k].defined() && !values[0].defined())
      refuse(fmt::format("parameter {} has {} without {}", i, names[k], names[0]));
}

}  // namespace

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
      if (slots_[i].values[k].defined()) entry[names[k]] = array_of(slots_[i].values[k]);
    }
    if (slots_[i].master.defined()) entry[master_key] = array_of(slots_[i].master);
  }
  return tree;
}

void Optimizer::load(const StateTree& state) {
  const Refuse refuse = [this](const std::string& why) {
    throw StateError(
        fmt::format("[{}] the state does not fit: {}; load what the same optimizer over the same "
                    "parameters has saved",
                    name(), why));
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
    check_steps(slots[i].steps, fmt::format("parameter {}", i), refuse);
    for (std::size_t k = 0; k < names.size(); ++k)
      if (entry.contains(names[k])) slots[i].values[k] = read_array(entry, names[k], i, parameters_[i], refuse);
    check_moments(slots[i].values, names, i, refuse);
    const DType own_dtype = parameters_[i].dtype();
    const bool keeps_master = is_half(own_dtype) && has_masters(group_of(i)), saved_master = entry.contains(master_key);
    if (saved_master && !keeps_master)
      refuse(fmt::format("it has master weights for parameter {} '{}', which is {} here and keeps none{}", i, own_name,
                         name_of(own_dtype), is_half(own_dtype) ? "; set master_weights" : ""));
    if (!saved_master && keeps_master && slots[i].steps > 0)
      refuse(
          fmt::format("it has no master weights for parameter {} '{}', which is {}, and what was lost by rounding is "
                      "not to be had from the parameter; unset master_weights, or begin with a new optimizer",
                      i, own_name, name_of(own_dtype)));
    if (!saved_master) continue;
    slots[i].master = read_array(entry, master_key, i, parameters_[i], refuse);
    if (slots[i].master.dtype() != float32)
      refuse(fmt::format("master of parameter {} is {}; it is float32", i, name_of(slots[i].master.dtype())));
  }
  const std::int64_t steps = state.get<std::int64_t>("step_count");
  check_steps(steps, "the optimizer", refuse);
  for (std::size_t group = 0; group < rates.size(); ++group) change_lr(group, rates[group]);
  slots_ = std::move(slots);
  step_count_ = steps;
}

}  // namespace everyo::inline v1
