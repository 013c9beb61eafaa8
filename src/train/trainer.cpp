#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "everyo/events.h"
#include "everyo/logging.h"
#include "everyo/ops.h"
#include "everyo/train.h"
#include "train/mode_scope.h"
#include "train/ranks.h"

namespace everyo::inline v1 {
namespace {

using base::Clock, base::seconds_since;

// Parameters of the model that are not the optimizer's. Theirs are gradients all the same, and those of another loss
// scale do not add up.
std::vector<Tensor> left_alone(ModuleBase& model, const Optimizer& optimizer) {
  std::vector<Tensor> others = model.parameters();
  std::erase_if(others, [&](const Tensor& p) {
    return std::ranges::any_of(optimizer.parameters(), [&](const Tensor& own) { return own.body() == p.body(); });
  });
  return others;
}

}  // namespace

double metric(const EpochMetrics& row, std::string_view name) {
  if (name == "loss") return row.loss;
  if (name == "accuracy") return row.accuracy;
  if (name != "val_loss" && name != "val_accuracy")
    throw ValueError(fmt::format("[metric] unknown metric '{}'; known: loss, accuracy, val_loss, val_accuracy", name));
  if (!row.validation)
    throw ValueError(fmt::format("[metric] there is no {} without a validation; give fit one, or take {}", name,
                                 name.substr(std::string_view("val_").size())));
  return name == "val_loss" ? row.validation->loss : row.validation->accuracy;
}

Trainer::Trainer(ModuleBase& model, Optimizer& optimizer, LossFunction loss, const TrainConfig& config)
    : model_(model), optimizer_(optimizer), loss_(std::move(loss)), config_(config) {
  if (!loss_) throw ValueError("[Trainer] there is no loss function; give one, such as cross_entropy");
  if (config.epochs < 1)
    throw ValueError(fmt::format("[Trainer] epochs {} is too few; give at least 1", config.epochs));
  if (config.clip_norm && !(*config.clip_norm > 0))
    throw ValueError(fmt::format("[Trainer] gradient_clip (clip_norm) {} must be above 0", *config.clip_norm));
  if (config.accumulate < 1)
    throw ValueError(fmt::format("[Trainer] accumulate {} is too few; a batch has at least 1 part", config.accumulate));
  if (config.early_stopping) {
    static_cast<void>(metric({.validation = Evaluation{}}, config.early_stopping->monitor));  // a name that is known
    early_.emplace(model, *config.early_stopping);
  }
  if (config.precision != float32 && !is_half(config.precision))
    throw ValueError(
        fmt::format("[Trainer] precision {} must be float32, float16 or bfloat16", name_of(config.precision)));
  ranks_ = std::make_unique<train::Ranks>(config.group, config.virtual_shards);
  if (config.precision == float16) {
    if (config_.scaler.ranks == nullptr) config_.scaler.ranks = ranks_->agreement();
    scaler_.emplace(config_.scaler);
  }
  if (config.schedule) scheduler_.emplace(optimizer, config.schedule);
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

void Trainer::step(const Batch& batch, std::int64_t rows) {
  // A step that is left out has used its masks of dropout; the next batch draws others.
  const std::int64_t tried = step_ + (scaler_ ? scaler_->skipped_steps() : 0);
  const Scoped<&Context::step> step_key(static_cast<std::uint64_t>(tried));
  const Scoped<&Context::rank> draws(0);  // parts have numbers that no other rank's have
  const Totals sums = ranks_->shards() > 0 ? run_shards(batch, rows) : run_parts(batch);
  epoch_.samples += sums.samples;
  if (sums.counted == 0) {
    if (!std::exchange(said_empty_, true) && ranks_->rank() == 0)
      log(LogLevel::warning,
          fmt::format("[Trainer] no target of the batch after step {} counts; it makes no step, nor do others like it",
                      step_));
    return;
  }
  epoch_.learning_rate = optimizer_.lr();
  update();
  epoch_.loss += sums.loss;
  epoch_.counted += sums.counted;
  epoch_.correct += sums.correct;
  epoch_.labels += sums.labels;
  if (config_.digests) config_.digests(step_digest(model_, optimizer_, tried + 1));
}

void Trainer::update() {
  const EventScope event("optimizer", EventKind::optimizer);
  if (try_step()) {
    if (scheduler_) scheduler_->step();
    ++step_;
  } else {
    ++epoch_.skipped;
    epoch_.overflowed = scaler_->overflowed();
    log_skip();
  }
  if (scaler_) scaler_->update();
}

// A run of skips is a few lines: the first, the second, the fourth and so on.
void Trainer::log_skip() const {
  if (ranks_->rank() != 0) return;
  const auto in_a_row = static_cast<std::uint64_t>(scaler_->skips_in_a_row()) + 1;
  if (!std::has_single_bit(in_a_row) || !log_enabled(LogLevel::warning)) return;
  log(LogLevel::warning,
      fmt::format(
          "[Trainer] after step {} a step is left out, {} in a row: at a loss scale of {} the gradient of '{}' is "
          "not finite",
          step_, in_a_row, scaler_->scale(), epoch_.overflowed.empty() ? "(on another rank)" : epoch_.overflowed));
}

// The optimizer's step, unless gradients overflowed; whether it was made.
bool Trainer::try_step() {
  if (scaler_ && !scaler_->unscale(optimizer_)) return scaler_->step(optimizer_);  // counts it
  if (config_.clip_norm)
    if (const double norm = clip_grad_norm(optimizer_.parameters(), *config_.clip_norm); !std::isfinite(norm))
      report_bad_gradient(norm);
  if (scaler_) return scaler_->step(optimizer_);
  optimizer_.step();
  return true;
}

std::optional<LossScaling> Trainer::scaling(const Totals& totals) const {
  if (!scaler_) return std::nullopt;
  return LossScaling{.scale = scaler_->scale(), .skipped = totals.skipped, .overflowed = totals.overflowed};
}

EpochMetrics Trainer::end_epoch(std::int64_t epoch, double seconds, const FitOptions& options) {
  const Totals totals = std::exchange(epoch_, {});
  EpochMetrics row{.epoch = epoch,
                   .samples = totals.samples,
                   .loss = totals.mean_loss(),
                   .accuracy = totals.accuracy(),
                   .learning_rate = totals.learning_rate,
                   .seconds = seconds,
                   .samples_per_second = static_cast<double>(totals.samples) / seconds,
                   .scaling = scaling(totals)};
  if (options.validation != nullptr) row.validation = evaluate(*options.validation);
  if (early_) row.best = early_->update(epoch, metric(row, early_->options().monitor));
  return row;
}

void Trainer::check_loader(const Loader& loader) const {
  const LoaderOptions& of = loader.options();
  const bool whole = of.world_size == 1 && of.shards == 0, own_part = of.world_size == ranks_->world_size() &&
                                                                      of.rank == ranks_->rank() &&
                                                                      of.shards == ranks_->shards();
  if (own_part || (ranks_->shards() > 0 && whole)) return;
  throw ValueError(
      fmt::format("[Trainer] the loader is of rank {} of {} with {} shards, and the trainer is rank {} of {} with {} "
                  "virtual shards; give the loader the trainer's numbers",
                  of.rank, of.world_size, of.shards, ranks_->rank(), ranks_->world_size(), ranks_->shards()));
}

void Trainer::check_optimizer() const {
  const std::vector<Tensor> all = model_.parameters();
  for (const Tensor& p : optimizer_.parameters())
    if (std::ranges::find(all, p.body(), &Tensor::body) == all.end())
      throw StateError(
          fmt::format("[Trainer] the optimizer's parameter '{}' {} is not the model's, so ranks and shards "
                      "would not share its gradient; make it a part of the model",
                      p.body()->leaf->name, to_string(p.shape())));
}

TrainResult Trainer::fit(Loader& loader, const FitOptions& options) {
  if (early_ && options.validation == nullptr)
    static_cast<void>(metric({}, early_->options().monitor));  // or it is refused
  check_loader(loader);
  others_ = left_alone(model_, optimizer_);
  if (ranks_->is_several() || ranks_->shards() > 0) check_optimizer();
  TrainResult result;
  try {
    run_epochs(loader, options, result);
  } catch (const std::exception& error) {
    ranks_->fail(fmt::format("rank {} stopped training: {}", ranks_->rank(), error.what()));
    throw;
  } catch (...) {
    ranks_->fail(fmt::format("rank {} stopped training", ranks_->rank()));
    throw;
  }
  return result;
}

void Trainer::run_epochs(Loader& loader, const FitOptions& options, TrainResult& result) {
  const train::ModeScope mode(model_, true);
  const Scoped<&Context::seed> seed(config_.seed);
  const train::Ranks::Exchange exchange(*ranks_, model_);
  const auto early = [this] { return early_ && early_->should_stop(); };
  if (ranks_->rank() != 0) {
    // Rank 0 speaks for all.
  } else if (early()) {
    log(LogLevel::warning, fmt::format("[Trainer] nothing to train: early stopping has ended this run, {} epochs after "
                                       "its best; raise patience",
                                       early_->wait()));
  } else if (loader.epoch() >= config_.epochs) {
    log(LogLevel::warning,
        fmt::format("[Trainer] nothing to train: the loader stands at epoch {} of {}; raise epochs, or "
                    "loader.seek(0)",
                    loader.epoch(), config_.epochs));
  }
  const bool may_stop = ranks_->any(static_cast<bool>(options.progress));
  const Clock::time_point run_start = Clock::now();
  const auto samples_of_run =
      static_cast<double>(loader.samples()) * static_cast<double>(config_.epochs - loader.epoch()) -
      static_cast<double>(loader.position());  // the product of whole numbers might not fit
  std::int64_t samples = 0;                    // over all ranks, of this run
  while (loader.epoch() < config_.epochs && !result.stopped && !early()) {
    const Clock::time_point start = Clock::now();
    TrainProgress now{.epoch = loader.epoch() + 1, .epochs = config_.epochs, .steps = loader.batches()};
    if (loader.position() == 0) epoch_ = {};
    while (loader.position() < loader.samples() && !result.stopped) {
      const EventScope step_event("step");
      const std::int64_t before = loader.position();
      const std::optional<Batch> batch = loader.next();
      step(*batch, std::min(loader.options().batch, loader.samples() - before));
      samples += loader.position() - before;
      if (!may_stop) continue;
      now.step = (loader.position() + loader.options().batch - 1) / loader.options().batch;
      now.loss = epoch_.mean_loss();
      now.accuracy = epoch_.accuracy();
      now.scaling = scaling(epoch_);
      now.samples_per_second = static_cast<double>(samples) / seconds_since(run_start);
      now.seconds_left = (samples_of_run - static_cast<double>(samples)) / now.samples_per_second;
      result.stopped = ranks_->any(options.progress && !options.progress(now));
    }
    if (loader.position() < loader.samples()) break;  // stopped; a part of an epoch is no row
    loader.next();                                    // nothing: on to the next epoch
    if (epoch_.samples == 0) continue;                // the loader stood at the end of an epoch
    result.epochs.push_back(end_epoch(now.epoch, seconds_since(start), options));
    if (options.epoch_end) options.epoch_end(result.epochs.back());
  }
  result.early = early();
  if (loader.epoch() >= config_.epochs || result.early) result.stopped = false;  // there was nothing left to stop
  if (early_ && !result.stopped) early_->restore();
  result.seconds = seconds_since(run_start);
}

}  // namespace everyo::inline v1
