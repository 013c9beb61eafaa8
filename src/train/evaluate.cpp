#include <limits>
#include <vector>

#include "everyo/ops.h"
#include "everyo/train.h"
#include "train/mode_scope.h"
#include "train/precision_scope.h"
#include "train/ranks.h"

namespace everyo::inline v1 {
namespace {

/// f(batch, the model's prediction) for the rows of all batches from `first` on that are `stride` apart, in order.
template <class F>
void for_each_prediction(ModuleBase& model, const Dataset& data, std::int64_t batch, F&& f, std::int64_t first = 0,
                         std::int64_t stride = 1) {
  if (data.size() == 0) throw ValueError("[evaluate] no batches to evaluate: the dataset has no samples");
  const train::ModeScope mode(model, false);
  const NoGrad no_grad;
  const std::shared_ptr<const Dataset> borrowed(std::shared_ptr<const void>(), &data);
  const Loader loader(borrowed, {.batch = batch});
  for (std::int64_t i = first; i < loader.batches(); i += stride) {
    const Batch each = loader.batch(i);
    f(i, each, model.forward_any(each.features));
  }
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

namespace {

// Of each batch: the loss times the targets that count, those, and as many labels as were right and as there are.
constexpr std::size_t figures = 4;

// Each rank evaluates every world_size-th batch, with the rows and so the bits that one rank's would have; figures are
// added up in the order of the batches.
Evaluation evaluate_on(train::Ranks& ranks, ModuleBase& model, const LossFunction& loss, const Dataset& data,
                       std::int64_t batch, const TargetCount& count) {
  std::vector<double> all;  // of every batch; 0 where another rank has it
  for_each_prediction(
      model, data, batch,
      [&](std::int64_t i, const Batch& each, const Tensor& prediction) {
        all.resize(figures * static_cast<std::size_t>(i + 1));
        const std::int64_t targets = count(each.targets);
        if (targets == 0) return;  // its mean may be 0 / 0
        double* const own = all.data() + figures * static_cast<std::size_t>(i);
        own[0] = loss(prediction, each.targets).item() * static_cast<double>(targets);
        own[1] = static_cast<double>(targets);
        own[2] = static_cast<double>(count_correct(prediction, each.targets, count.ignore_index).value_or(0));
        own[3] = static_cast<double>(count_targets(each.targets, count.ignore_index));
      },
      ranks.rank(), ranks.world_size());
  all.resize(figures * static_cast<std::size_t>((data.size() - 1) / batch + 1));
  ranks.sum(all);  // each sum has one part that is not 0
  double sums[figures] = {};
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % figures] += all[i];
  const auto mean = [](double sum, double n) { return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / n; };
  return {mean(sums[0], sums[1]), mean(sums[2], sums[3]), data.size()};
}

}  // namespace

Evaluation evaluate(ModuleBase& model, const LossFunction& loss, const Dataset& data, std::int64_t batch,
                    const TargetCount& count) {
  train::Ranks alone(nullptr, 0);
  return evaluate_on(alone, model, loss, data, batch, count);
}

Evaluation Trainer::evaluate(const Dataset& data, std::int64_t batch) const {
  const train::PrecisionScope low(config_.precision);
  return evaluate_on(*ranks_, model_, loss_, data, batch, config_.count);
}

Tensor predict_classes(ModuleBase& model, const Dataset& data, std::int64_t batch) {
  std::vector<Tensor> classes;
  for_each_prediction(model, data, batch,
                      [&](std::int64_t, const Batch&, const Tensor& logits) { classes.push_back(argmax(logits, 1)); });
  return concatenate(classes);
}

}  // namespace everyo::inline v1
