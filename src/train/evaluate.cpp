#include <limits>

#include "everyo/ops.h"
#include "everyo/train.h"
#include "train/mode_scope.h"
#include "train/precision_scope.h"

namespace everyo::inline v1 {
namespace {

/// f(batch, the model's prediction) for all rows, in order.
template <class F>
void for_each_prediction(ModuleBase& model, const Dataset& data, std::int64_t batch, F&& f) {
  if (data.size() == 0) throw ValueError("[evaluate] no batches to evaluate: the dataset has no samples");
  const train::ModeScope mode(model, false);
  const NoGrad no_grad;
  const std::shared_ptr<const Dataset> borrowed(std::shared_ptr<const void>(), &data);
  for (Loader loader(borrowed, {.batch = batch}); const Batch& each : loader) f(each, model.forward_any(each.features));
}

}  // namespace

std::optional<std::int64_t> count_correct(const Tensor& logits, const Tensor& labels,
                                          std::optional<std::int64_t> ignore_index) {
  const bool whole = !is_floating(labels.dtype()) && labels.dtype() != boolean;
  if (logits.rank() != 2 || !whole || labels.size() != logits.shape()[0] || logits.shape()[1] == 0) return std::nullopt;
  const NoGrad no_grad;
  const Tensor predicted = argmax(logits, 1), wanted = cast(labels, int64);  // [N] each
  const auto p = predicted.data<std::int64_t>(), y = wanted.data<std::int64_t>();
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < p.size(); ++i) correct += p[i] == y[i] && y[i] != ignore_index ? 1 : 0;
  return correct;
}

Evaluation evaluate(ModuleBase& model, const LossFunction& loss, const Dataset& data, std::int64_t batch,
                    const TargetCount& count) {
  double loss_sum = 0;
  std::int64_t correct = 0, counted = 0, labels = 0, samples = 0;
  for_each_prediction(model, data, batch, [&](const Batch& each, const Tensor& prediction) {
    samples += each.features.shape()[0];
    const std::int64_t targets = count(each.targets);
    if (targets == 0) return;  // its mean may be 0 / 0
    loss_sum += loss(prediction, each.targets).item() * static_cast<double>(targets);
    counted += targets;
    correct += count_correct(prediction, each.targets, count.ignore_index).value_or(0);
    labels += count_targets(each.targets, count.ignore_index);
  });
  const auto mean = [](double sum, std::int64_t n) {
    return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(n);
  };
  return {mean(loss_sum, counted), mean(static_cast<double>(correct), labels), samples};
}

Evaluation Trainer::evaluate(const Dataset& data, std::int64_t batch) const {
  const train::PrecisionScope low(config_.precision);
  return everyo::evaluate(model_, loss_, data, batch, config_.count);
}

Tensor predict_classes(ModuleBase& model, const Dataset& data, std::int64_t batch) {
  std::vector<Tensor> classes;
  for_each_prediction(model, data, batch,
                      [&](const Batch&, const Tensor& logits) { classes.push_back(argmax(logits, 1)); });
  return concatenate(classes);
}

}  // namespace everyo::inline v1
