#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "everyo/events.h"
#include "everyo/logging.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace everyo::inline v1 {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool all_finite(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype())) return true;
  return visit_dtype(t.dtype(), [&]<class T>() {
    const auto values = t.data<T>();
    return std::all_of(values.begin(), values.end(), [](T v) { return std::isfinite(static_cast<double>(widen(v))); });
  });
}

/// Puts a model into one mode, and each of its modules back into its own.
class ModeScope {
 public:
  ModeScope(ModuleBase& model, bool training) {
    for (const auto& [name, module] : model.named_modules()) modes_.emplace_back(module, module->training());
    model.train(training);
  }
  ~ModeScope() {
    for (const auto& [module, training] : modes_) module->train(training);  // parents come first
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<ModuleBase*, bool>> modes_;
};

/// f(batch, the model's prediction) for all rows, in order.
template <class F>
void for_each_prediction(ModuleBase& model, const ArrayDataset& data, std::int64_t batch, F&& f) {
  if (data.size() == 0) throw ValueError("[evaluate] no batches to evaluate: the dataset has no samples");
  const ModeScope mode(model, false);
  const NoGrad no_grad;
  for (Loader loader(data, {.batch = batch}); const Batch& each : loader) f(each, model.forward_any(each.features));
}

}  // namespace

std::optional<std::int64_t> count_correct(const Tensor& logits, const Tensor& labels) {
  const bool whole = !is_floating(labels.dtype()) && labels.dtype() != boolean;
  if (logits.rank() != 2 || !whole || labels.size() != logits.shape()[0] || logits.shape()[1] == 0) return std::nullopt;
  const NoGrad no_grad;
  const Tensor predicted = argmax(logits, 1), wanted = cast(labels, int64);  // [N] each
  const auto p = predicted.data<std::int64_t>(), y = wanted.data<std::int64_t>();
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < p.size(); ++i) correct += p[i] == y[i] ? 1 : 0;
  return correct;
}

Trainer::Trainer(ModuleBase& model, Optimizer& optimizer, LossFunction loss, const TrainConfig& config)
    : model_(model), optimizer_(optimizer), loss_(std::move(loss)), config_(config) {
  if (!loss_) throw ValueError("[Trainer] there is no loss function; give one, such as cross_entropy");
  if (config.epochs < 1)
    throw ValueError(fmt::format("[Trainer] epochs {} is too few; give at least 1", config.epochs));
  if (config.clip_norm && !(*config.clip_norm > 0))
    throw ValueError(fmt::format("[Trainer] gradient_clip (clip_norm) {} must be above 0", *config.clip_norm));
}

Trainer::StepResult Trainer::step(const Batch& batch) {
  const Scoped<&Context::step> step_key(static_cast<std::uint64_t>(step_));
  Tensor prediction, loss;
  {
    const EventScope event("forward", EventKind::forward);
    prediction = model_.forward_any(batch.features);
    loss = loss_(prediction, batch.targets);
  }
  const double value = loss.item();
  if (!std::isfinite(value)) report_bad_loss(loss, batch);
  optimizer_.zero_grad();
  {
    const EventScope event("backward", EventKind::backward);
    loss.backward();
  }
  {
    const EventScope event("optimizer", EventKind::optimizer);
    if (config_.clip_norm && !std::isfinite(clip_grad_norm(optimizer_.parameters(), *config_.clip_norm)))
      report_bad_loss(loss, batch);
    optimizer_.step();
  }
  ++step_;
  return {value, count_correct(prediction, batch.targets).value_or(0)};
}

void Trainer::report_bad_loss(const Tensor& loss, const Batch& batch) {
  const std::vector<Tensor> parameters = model_.parameters();
  std::string cause;
  if (!all_finite(batch.features) || !all_finite(batch.targets)) {
    cause = "the batch itself has values that are not finite; look at the data";
  } else if (const std::string value = first_nonfinite(parameters, true); !value.empty()) {
    cause = fmt::format(
        "parameter '{}' is the first with a value that is not finite; try a lower learning rate, or "
        "clip the gradients",
        value);
  } else {
    optimizer_.zero_grad();
    loss.backward();
    const std::string gradient = first_nonfinite(parameters);
    cause = gradient.empty() ? "all parameters and gradients are finite; look at the loss function"
                             : fmt::format(
                                   "all parameters are finite; '{}' is the first whose gradient is not; try a lower "
                                   "learning rate, or clip the gradients",
                                   gradient);
    optimizer_.zero_grad();
  }
  const double value = loss.item();
  throw StateError(fmt::format("[Trainer] step {}: the loss is {}; {}", step_ + 1,
                               std::isnan(value) ? std::abs(value) : value, cause));
}

TrainResult Trainer::fit(Loader& loader, const ProgressCallback& progress, const EpochCallback& epoch_end) {
  const ModeScope mode(model_, true);
  const Scoped<&Context::seed> seed(config_.seed);
  if (loader.epoch() >= config_.epochs)
    log(LogLevel::warning,
        fmt::format("[Trainer] nothing to train: the loader stands at epoch {} of {}; raise epochs, or "
                    "loader.seek(0)",
                    loader.epoch(), config_.epochs));
  TrainResult result;
  const Clock::time_point run_start = Clock::now();
  const auto samples_of_run =
      static_cast<double>(loader.samples() * (config_.epochs - loader.epoch()) - loader.position());
  std::int64_t samples = 0;  // over all ranks, of this run
  while (loader.epoch() < config_.epochs && !result.stopped) {
    const Clock::time_point start = Clock::now();
    TrainProgress now{.epoch = loader.epoch() + 1, .epochs = config_.epochs, .steps = loader.batches()};
    if (loader.position() == 0) epoch_ = {};
    while (loader.position() < loader.samples() && !result.stopped) {
      const EventScope step_event("step");
      const std::int64_t before = loader.position();
      std::optional<Batch> batch;
      {
        const EventScope event("data", EventKind::data);
        batch = loader.next();
      }
      const StepResult one = step(*batch);
      epoch_.add(one.loss, one.correct, batch->features.shape()[0]);
      samples += loader.position() - before;
      now.step = (loader.position() + loader.options().batch - 1) / loader.options().batch;
      now.loss = epoch_.mean_loss();
      now.accuracy = epoch_.accuracy();
      if (!progress) continue;
      now.samples_per_second = static_cast<double>(samples) / seconds_since(run_start);
      now.seconds_left = (samples_of_run - static_cast<double>(samples)) / now.samples_per_second;
      result.stopped = !progress(now);
    }
    if (loader.position() < loader.samples()) break;  // stopped; a part of an epoch is no row
    loader.next();                                    // nothing: on to the next epoch
    const Totals totals = std::exchange(epoch_, {});
    if (totals.samples == 0) continue;  // the loader stood at the end of an epoch
    const double seconds = seconds_since(start);
    result.epochs.push_back({.epoch = now.epoch,
                             .samples = totals.samples,
                             .loss = totals.mean_loss(),
                             .accuracy = totals.accuracy(),
                             .learning_rate = optimizer_.lr(),
                             .seconds = seconds,
                             .samples_per_second = static_cast<double>(totals.samples) / seconds});
    if (epoch_end) epoch_end(result.epochs.back());
  }
  result.seconds = seconds_since(run_start);
  return result;
}

Evaluation Trainer::evaluate(const ArrayDataset& data, std::int64_t batch) const {
  return everyo::evaluate(model_, loss_, data, batch);
}

Evaluation evaluate(ModuleBase& model, const LossFunction& loss, const ArrayDataset& data, std::int64_t batch) {
  double loss_sum = 0;
  std::int64_t correct = 0, samples = 0;
  for_each_prediction(model, data, batch, [&](const Batch& each, const Tensor& prediction) {
    const std::int64_t rows = each.features.shape()[0];
    loss_sum += loss(prediction, each.targets).item() * static_cast<double>(rows);
    correct += count_correct(prediction, each.targets).value_or(0);
    samples += rows;
  });
  const auto count = static_cast<double>(samples);
  return {loss_sum / count, static_cast<double>(correct) / count, samples};
}

Tensor predict_classes(ModuleBase& model, const ArrayDataset& data, std::int64_t batch) {
  std::vector<Tensor> classes;
  for_each_prediction(model, data, batch,
                      [&](const Batch&, const Tensor& logits) { classes.push_back(argmax(logits, 1)); });
  return concatenate(classes);
}

}  // namespace everyo::inline v1
