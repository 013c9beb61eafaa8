#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "data/gather.h"
#include "everyo/autograd.h"
#include "everyo/events.h"
#include "everyo/ops.h"
#include "everyo/train.h"
#include "kernels/parallel.h"
#include "train/precision_scope.h"
#include "train/ranks.h"

// Forward and backward of a batch: in micro-batches, whose sum ranks average, or in virtual shards.
namespace everyo::inline v1 {

void Trainer::zero_grad() const {
  optimizer_.zero_grad();
  for (const Tensor& p : others_) p.zero_grad();
}

Trainer::Forward Trainer::forward(const MicroBatch& part) const {
  const EventScope event("forward", EventKind::forward);
  const train::PrecisionScope low(config_.precision);
  Forward made{model_.forward_any(part.features), {}};
  made.loss = loss_(made.prediction, part.targets);
  // A weight would be rounded with it.
  if (low.is_on() && is_half(made.loss.dtype())) made.loss = cast(made.loss, float32);
  return made;
}

void Trainer::backward(const Forward& made, double weight) const {
  const EventScope event("backward", EventKind::backward);
  const Tensor weighted = weight == 1 ? made.loss : made.loss * weight;
  scaler_ ? scaler_->backward(weighted) : weighted.backward();
}

void Trainer::forward_backward(const MicroBatch& part, Totals& sums) {
  const Forward made = forward(part);
  const double value = made.loss.item();
  if (!std::isfinite(value)) report_bad_loss(made.loss, part);
  backward(made, part.weight);
  sums.loss += value * part.weight;
  sums.correct += count_correct(made.prediction, part.targets, config_.count.ignore_index).value_or(0);
  sums.labels += count_targets(part.targets, config_.count.ignore_index);
}

// This rank's part, and what all ranks' came to.
Trainer::Totals Trainer::run_parts(const Batch& batch) {
  const auto first_number = static_cast<std::int32_t>(ranks_->rank() * config_.accumulate);
  const MicroBatches parts(batch,
                           {.accumulate = config_.accumulate, .count = config_.count, .first_number = first_number});
  DataParallel* const parallel = ranks_->parallel();
  Totals sums{.samples = batch.counted()};
  if (parallel == nullptr && parts.empty()) return sums;
  zero_grad();
  if (parallel != nullptr) parallel->set_weight(static_cast<double>(parts.count()));
  std::size_t left = parts.size();
  for (const MicroBatch& part : parts) {
    std::optional<DataParallel::NoSync> alone;
    if (--left > 0 && parallel != nullptr) alone.emplace(*parallel);
    forward_backward(part, sums);
  }
  sums.loss *= static_cast<double>(parts.count());
  sums.counted = parts.count();
  if (parallel == nullptr) return sums;
  if (parts.empty()) parallel->take_part();
  double all[] = {sums.loss, static_cast<double>(sums.counted), static_cast<double>(sums.correct),
                  static_cast<double>(sums.labels), static_cast<double>(sums.samples)};
  ranks_->sum(all);
  const auto whole = [](double v) { return static_cast<std::int64_t>(v); };
  return {.loss = all[0],
          .counted = whole(all[1]),
          .correct = whole(all[2]),
          .labels = whole(all[3]),
          .samples = whole(all[4])};
}

// A batch in virtual shards: the rows of this rank's, and of all of them what is known.
struct Trainer::Shards {
  std::vector<MicroBatch> parts;
  std::vector<double> counts, losses, correct, labels;
  double total = 0;
};

Trainer::Shards Trainer::cut(const Batch& batch, std::int64_t rows) const {
  VirtualShards& shards = *ranks_->virtual_shards();
  const auto size = static_cast<std::size_t>(shards.shards());
  Shards cut{std::vector<MicroBatch>(size), std::vector<double>(size), std::vector<double>(size),
             std::vector<double>(size), std::vector<double>(size)};
  const Block own = shards.own_shards();
  // A loader gives the whole batch, or the rows from this rank's first shard on.
  const auto of = [&](std::int64_t shard) { return train::rows_of_shard(rows, shard, shards.shards()); };
  const std::int64_t start = batch.counted() == rows ? 0 : of(own.first).first;
  for (std::int64_t s = own.first; s < own.end; ++s) {
    const auto at = static_cast<std::size_t>(s);
    const Block block = of(s);
    MicroBatch& part = cut.parts[at];
    part.features = data::view_rows(batch.features, block.first - start, block.size());
    part.targets = data::view_rows(batch.targets, block.first - start, block.size());
    part.number = static_cast<std::int32_t>(s);
    part.count = block.size() == 0 ? 0 : config_.count(part.targets);
    cut.counts[at] = static_cast<double>(part.count);
  }
  shards.share(cut.counts);
  for (const double count : cut.counts) cut.total += count;
  for (std::size_t s = 0; s < size && cut.total > 0; ++s) cut.parts[s].weight = cut.counts[s] / cut.total;
  return cut;
}

Trainer::Totals Trainer::run_shards(const Batch& batch, std::int64_t rows) {
  VirtualShards& shards = *ranks_->virtual_shards();
  Shards cut = this->cut(batch, rows);
  Totals sums{.samples = rows};
  if (cut.total == 0) return sums;
  zero_grad();
  const Block own = shards.own_shards();
  {
    const EventScope event("shards", EventKind::other);
    // Threads work on a shard each, so fewer of them hold fewer shards' activations.
    const std::int64_t at_once = (own.size() + config_.accumulate - 1) / config_.accumulate;
    const ThreadLimit limit(static_cast<int>(std::min<std::int64_t>(at_once, kernels::max_threads())));
    shards.run([&](std::int64_t s) {
      const auto at = static_cast<std::size_t>(s);
      const MicroBatch& part = cut.parts[at];
      if (part.count == 0) return;
      const Forward made = forward(part);
      const double value = made.loss.item();
      cut.losses[at] = value;
      if (!std::isfinite(value)) return;
      backward(made, part.weight);
      cut.correct[at] =
          static_cast<double>(count_correct(made.prediction, part.targets, config_.count.ignore_index).value_or(0));
      cut.labels[at] = static_cast<double>(count_targets(part.targets, config_.count.ignore_index));
    });
  }
  for (std::vector<double>* values : {&cut.losses, &cut.correct, &cut.labels}) shards.share(*values);
  for (std::size_t s = 0; s < cut.losses.size(); ++s) {
    if (std::isfinite(cut.losses[s])) continue;
    const auto shard = static_cast<std::int64_t>(s);
    if (shard < own.first || shard >= own.end) ranks_->wait_for_others();  // its rank says why
    BufferUpdates dropped;
    const Scoped<&Context::buffers> buffers(&dropped);
    const Scoped<&Context::micro_batch> draws(cut.parts[s].number);
    report_bad_loss(forward(cut.parts[s]).loss, cut.parts[s]);
  }
  double correct = 0, labels = 0;
  for (std::size_t s = 0; s < cut.losses.size(); ++s) {
    sums.loss += cut.losses[s] * cut.counts[s];
    correct += cut.correct[s];
    labels += cut.labels[s];
  }
  sums.counted = static_cast<std::int64_t>(cut.total);
  sums.correct = static_cast<std::int64_t>(correct);
  sums.labels = static_cast<std::int64_t>(labels);
  return sums;
}

}  // namespace everyo::inline v1
