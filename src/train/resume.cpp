#include <fmt/format.h>

#include <memory>

#include "everyo/train.h"

// A Trainer's whole state, and the way back.
namespace everyo::inline v1 {
namespace {

StateTree state_of(const ModuleBase& model) {
  StateTree tree;
  for (const auto& [name, tensor] : model.state_dict()) {
    const auto owner = std::make_shared<const Tensor>(tensor.copy());
    tree[name] = StateArray{tensor.spec(), {owner->bytes(), tensor.spec().bytes()}, owner, {}};
  }
  return tree;
}

// Borrows the tree's bytes.
StateDict state_dict_of(const StateTree& tree) {
  StateDict dict;
  for (const auto& [name, entry] : tree.entries()) {
    const StateArray& array = entry.as<StateArray>();
    array.check();
    if (array.shard)
      throw StateError(fmt::format("[Trainer] '{}' in the state is a shard; put the shards together first", name));
    dict.emplace_back(name, Tensor::borrow(const_cast<std::byte*>(array.bytes.data()), array.spec));
  }
  return dict;
}

}  // namespace

StateTree Trainer::state(const Loader& loader) const {
  StateTree tree;
  tree["model"] = state_of(model_);
  tree["optimizer"] = optimizer_.state();
  tree["loader"] = loader.state();
  tree["trainer"]["step"] = step_;
  tree["trainer"]["loss_sum"] = epoch_.loss;
  tree["trainer"]["correct"] = epoch_.correct;
  tree["trainer"]["samples"] = epoch_.samples;
  return tree;
}

void Trainer::load(const StateTree& state, Loader& loader) {
  const StateTree& own = state.at("trainer");
  const auto step = own.get<std::int64_t>("step");
  const Totals epoch{own.get<double>("loss_sum"), own.get<std::int64_t>("correct"), own.get<std::int64_t>("samples")};
  if (step < 0 || epoch.samples < 0 || epoch.correct < 0 || epoch.correct > epoch.samples)
    throw StateError(fmt::format("[Trainer] the state has step {}, {} right of {} samples; it is damaged", step,
                                 epoch.correct, epoch.samples));
  const StateDict values = state_dict_of(state.at("model"));
  const StateTree before = this->state(loader);  // each part checks itself; if a later one refuses, all goes back
  try {
    model_.load_state_dict(values);
    optimizer_.load(state.at("optimizer"));
    loader.load(state.at("loader"));
  } catch (...) {
    model_.load_state_dict(state_dict_of(before.at("model")));
    optimizer_.load(before.at("optimizer"));
    loader.load(before.at("loader"));
    throw;
  }
  step_ = step;
  epoch_ = epoch;
}

}  // namespace everyo::inline v1
