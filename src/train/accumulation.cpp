#include "everyo/accumulation.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/gather.h"
#include "everyo/ops.h"

namespace everyo::inline v1 {
namespace {

void check_accumulate(std::string_view op, std::int64_t accumulate) {
  if (accumulate < 1)
    throw ValueError(fmt::format("[{}] accumulate {} is too few; a batch has at least 1 part", op, accumulate));
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

}  // namespace

std::int64_t count_targets(const Tensor& targets, std::optional<std::int64_t> ignore_index) {
  if (!targets.defined() || targets.rank() == 0)
    throw ShapeError(fmt::format("[count_targets] targets {} have no rows; give [N, ..]",
                                 targets.defined() ? to_string(targets.shape()) : "undefined"));
  if (!ignore_index || is_floating(targets.dtype()) || targets.dtype() == boolean) return targets.shape()[0];
  const NoGrad no_grad;
  const Tensor whole = cast(targets, int64);
  return targets.size() - std::ranges::count(whole.data<std::int64_t>(), *ignore_index);
}

std::int64_t TargetCount::operator()(const Tensor& targets) const {
  if (!of_targets) return count_targets(targets, ignore_index);
  const std::int64_t count = of_targets(targets);
  if (count < 0) throw ValueError(fmt::format("[TargetCount] of_targets gave {}; a count is 0 or more", count));
  return count;
}

MicroBatches::MicroBatches(const Batch& batch, const MicroBatchOptions& options) {
  check_accumulate("MicroBatches", options.accumulate);
  static_cast<void>(ArrayDataset(batch.features, batch.targets));  // refuses other numbers of rows
  const std::int64_t rows = batch.counted(), parts = std::min(options.accumulate, rows);
  for (std::int64_t part = 0, begin = 0; part < parts; ++part) {
    const std::int64_t size = rows / parts + (part < rows % parts ? 1 : 0);
    const bool whole = parts == 1 && batch.padding == 0;
    MicroBatch one{whole ? batch.features : data::view_rows(batch.features, begin, size),
                   whole ? batch.targets : data::view_rows(batch.targets, begin, size)};
    begin += size;
    one.number = options.first_number + static_cast<std::int32_t>(part);
    one.count = options.count(one.targets);
    count_ += one.count;
    if (one.count > 0) parts_.push_back(std::move(one));
  }
  for (MicroBatch& part : parts_) part.weight = static_cast<double>(part.count) / static_cast<double>(count_);
}

EffectiveBatch effective_batch(const LoaderOptions& loader, std::int64_t accumulate) {
  check_accumulate("effective_batch", accumulate);
  if (loader.batch < 1 || loader.world_size < 1)
    throw ValueError(fmt::format("[effective_batch] batch {} over {} ranks; both must be at least 1", loader.batch,
                                 loader.world_size));
  const std::int64_t rows = divide_up(loader.batch, loader.world_size);
  const std::int64_t parts = std::min(accumulate, rows);
  return {.rows = loader.batch, .micro_batch = divide_up(rows, parts), .accumulate = parts, .ranks = loader.world_size};
}

std::string to_string(const EffectiveBatch& batch) {
  const bool even = batch.micro_batch * batch.accumulate * batch.ranks == batch.rows;
  return fmt::format("{} = micro-batch {}{} x accumulation {} x ranks {}", batch.rows, even ? "" : "up to ",
                     batch.micro_batch, batch.accumulate, batch.ranks);
}

}  // namespace everyo::inline v1
