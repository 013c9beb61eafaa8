#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <utility>

#include "base/counts.h"
#include "everyo/logging.h"
#include "everyo/train.h"
#include "train/model_state.h"
#include "train/ranks.h"

// A Trainer's whole state, and the way back.
namespace everyo::train {

StateTree state_of(const ModuleBase& model) {
  StateTree tree;
  for (const auto& [name, tensor] : model.state_dict()) {
    const auto owner = std::make_shared<const Tensor>(tensor.copy());
    tree[name] = StateArray{tensor.spec(), {owner->bytes(), tensor.spec().bytes()}, owner, {}};
  }
  return tree;
}

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

}  // namespace everyo::train

namespace everyo::inline v1 {
namespace {

// The parts of a state that only some trainers have.
constexpr const char *schedule_key = "schedule", *early_key = "early_stopping", *scaler_key = "scaler";

void check_part(const StateTree& state, const char* key, bool here) {
  if (state.contains(key) == here) return;
  throw StateError(fmt::format("[Trainer] the state was saved {} {}, and this trainer is {}; make it as it was then",
                               here ? "without" : "with", key, here ? "with one" : "without"));
}

}  // namespace

StateTree Trainer::state(const Loader& loader) const {
  StateTree tree;
  tree["model"] = train::state_of(model_);
  tree["optimizer"] = optimizer_.state();
  if (scheduler_) tree[schedule_key] = scheduler_->state();
  if (early_) tree[early_key] = early_->state();
  if (scaler_) tree[scaler_key] = scaler_->state();
  tree["loader"] = loader.state();
  StateTree& own = tree["trainer"];
  own["precision"] = std::string(name_of(config_.precision));
  own["ranks"] = ranks_->world_size();
  own["virtual_shards"] = ranks_->shards();
  own["step"] = step_;
  own["loss_sum"] = epoch_.loss;
  own["counted"] = epoch_.counted;
  own["correct"] = epoch_.correct;
  own["labels"] = epoch_.labels;
  own["samples"] = epoch_.samples;
  own["learning_rate"] = epoch_.learning_rate;
  if (scaler_) {
    own["skipped"] = epoch_.skipped;
    own["overflowed"] = epoch_.overflowed;
  }
  return tree;
}

void Trainer::load(const StateTree& state, Loader& loader) {
  const StateTree& own = state.at("trainer");
  const auto step = own.get<std::int64_t>("step"), samples = own.get<std::int64_t>("samples");
  // Version 0.4 had one number for all three counts.
  const auto count = [&](const char* key) { return own.contains(key) ? own.get<std::int64_t>(key) : samples; };
  const std::string precision = own.contains("precision") ? own.get<std::string>("precision") : "float32";
  if (precision != name_of(config_.precision))
    throw StateError(
        fmt::format("[Trainer] the state was saved in {}, and this trainer's precision is {}; make it with "
                    "the precision of then, or begin anew with the model's weights",
                    precision, name_of(config_.precision)));
  // Version 0.4 knew one rank and no shards.
  const std::int64_t shards = own.contains("virtual_shards") ? own.get<std::int64_t>("virtual_shards") : 0;
  const std::int64_t ranks = own.contains("ranks") ? own.get<std::int64_t>("ranks") : 1;
  if (shards != ranks_->shards())
    throw StateError(
        fmt::format("[Trainer] the state was saved with virtual_shards {}, and this trainer has {}; the bits would be "
                    "others, so make it with as many as then",
                    shards, ranks_->shards()));
  const Totals epoch{.loss = own.get<double>("loss_sum"),
                     .counted = count("counted"),
                     .correct = own.get<std::int64_t>("correct"),
                     .labels = count("labels"),
                     .samples = samples,
                     .learning_rate = own.contains("learning_rate") ? own.get<double>("learning_rate") : 0,
                     .skipped = scaler_ ? own.get<std::int64_t>("skipped") : 0,
                     .overflowed = scaler_ ? own.get<std::string>("overflowed") : ""};
  for (const auto& [what, value] :
       std::initializer_list<std::pair<const char*, std::int64_t>>{{"step", step},
                                                                   {"samples", samples},
                                                                   {"counted", epoch.counted},
                                                                   {"labels", epoch.labels},
                                                                   {"skipped", epoch.skipped},
                                                                   {"ranks", ranks}})
    if (!base::is_count(value))
      throw StateError(fmt::format("[Trainer] the state's {} is {}; a count is from 0 to {}, so it is damaged", what,
                                   value, base::most_counted));
  if (epoch.correct < 0 || epoch.correct > epoch.labels)
    throw StateError(fmt::format("[Trainer] the state has step {}, {} right of {} samples; it is damaged", step,
                                 epoch.correct, epoch.labels));
  check_part(state, schedule_key, scheduler_.has_value());
  check_part(state, early_key, early_.has_value());
  check_part(state, scaler_key, scaler_.has_value());
  const StateDict values = train::state_dict_of(state.at("model"));
  const auto load_all = [&](const StateDict& model, const StateTree& from) {
    model_.load_state_dict(model);
    optimizer_.load(from.at("optimizer"));
    if (scheduler_) scheduler_->load(from.at(schedule_key));
    if (early_) early_->load(from.at(early_key));
    if (scaler_) scaler_->load(from.at(scaler_key));
    loader.load(from.at("loader"));
  };
  const StateTree before = this->state(loader);  // each part checks itself; if a later one refuses, all goes back
  try {
    load_all(values, state);
  } catch (...) {
    load_all(train::state_dict_of(before.at("model")), before);
    throw;
  }
  step_ = step;
  epoch_ = epoch;
  if (shards == 0 && ranks != ranks_->world_size() && ranks_->rank() == 0)
    log(LogLevel::warning,
        fmt::format("[Trainer] the state was saved on {} ranks, and this run has {}: from here on its bits may differ "
                    "from those of a run on {}; virtual_shards make runs the same for any number",
                    ranks, ranks_->world_size(), ranks));
}

}  // namespace everyo::inline v1
