#include "everyo/early_stopping.h"

#include <fmt/format.h>

#include <limits>

#include "base/counts.h"
#include "train/model_state.h"

namespace everyo::inline v1 {
namespace {

constexpr std::string_view name_of(MonitorMode mode) { return mode == MonitorMode::min ? "min" : "max"; }

}  // namespace

EarlyStopping::EarlyStopping(ModuleBase& model, EarlyStoppingOptions options)
    : model_(model),
      options_(std::move(options)),
      best_(options_.mode == MonitorMode::min ? std::numeric_limits<double>::infinity()
                                              : -std::numeric_limits<double>::infinity()) {
  if (options_.patience.value_or(0) < 0 || !(options_.min_delta >= 0))
    throw ValueError(fmt::format("[EarlyStopping] patience {} and min_delta {}; neither may be negative",
                                 options_.patience.value_or(0), options_.min_delta));
}

bool EarlyStopping::update(std::int64_t epoch, double value) {
  const double by = options_.mode == MonitorMode::min ? best_ - value : value - best_;
  if (!(by > options_.min_delta)) {
    ++wait_;
    return false;
  }
  best_ = value;
  best_epoch_ = epoch;
  wait_ = 0;
  if (options_.restore_best_weights) weights_ = train::state_of(model_);
  return true;
}

void EarlyStopping::restore() const {
  if (!weights_.entries().empty()) model_.load_state_dict(train::state_dict_of(weights_));
}

StateTree EarlyStopping::state() const {
  StateTree tree;
  tree["monitor"] = options_.monitor;
  tree["mode"] = name_of(options_.mode);
  tree["best"] = best_;
  tree["best_epoch"] = best_epoch_;
  tree["wait"] = wait_;
  tree["weights"] = weights_;
  return tree;
}

void EarlyStopping::load(const StateTree& state) {
  const auto refuse = [](const std::string& why) {
    throw StateError(fmt::format("[EarlyStopping] the state does not fit: {}", why));
  };
  const auto &monitor = state.get<std::string>("monitor"), &mode = state.get<std::string>("mode");
  if (monitor != options_.monitor || mode != name_of(options_.mode))
    refuse(
        fmt::format("it watched {} ({}), this one {} ({})", monitor, mode, options_.monitor, name_of(options_.mode)));
  const auto best = state.get<double>("best");
  const auto best_epoch = state.get<std::int64_t>("best_epoch"), wait = state.get<std::int64_t>("wait");
  if (!base::is_count(best_epoch) || !base::is_count(wait))
    refuse(fmt::format("its best epoch is {}, and it waited {}; a count is from 0 to {}", best_epoch, wait,
                       base::most_counted));
  const StateTree& weights = state.at("weights");
  if (!weights.entries().empty()) {
    const StateDict own = model_.state_dict(), saved = train::state_dict_of(weights);
    if (own.size() != saved.size()) refuse(fmt::format("it has {} tensors, the model {}", saved.size(), own.size()));
    for (const auto& [name, tensor] : own)
      if (!weights.contains(name) || weights.get<StateArray>(name).spec != tensor.spec())
        refuse(fmt::format("the model's '{}' {} {} is not among its best weights", name,
                           everyo::name_of(tensor.dtype()), to_string(tensor.shape())));
  }
  best_ = best;
  best_epoch_ = best_epoch;
  wait_ = wait;
  weights_ = weights;
}

}  // namespace everyo::inline v1
