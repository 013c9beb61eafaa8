#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "everyo/data/dataset.h"
#include "everyo/data/loader.h"
#include "everyo/data/transform.h"

namespace everyo::data {

/// Throws ShapeError unless `rows`, which a data set gave, are `wanted` rows with values: to be called before they are
/// read, since anybody may write a data set. `what` stands first in the message.
void check_rows(std::string_view what, const Batch& rows, std::int64_t wanted);

/// What one rank takes from a batch.
struct Part {
  std::int64_t epoch = 0, position = 0;  // of the batch in the global order
  std::int64_t first = 0, count = 0;     // its rows, in the data set itself when there are no indices
  std::vector<std::int64_t> indices;
  bool by_index = false;
  std::int64_t padding = 0;     // of the last rows
  std::int64_t any_sample = 0;  // a row of the data set, whose transform tells the shape of no rows
};

/// Where part `part` of `parts` begins, when `count` is cut in contiguous parts of which the first are one larger.
constexpr std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t part) noexcept {
  const std::int64_t over = count % parts;
  return part * (count / parts) + (part < over ? part : over);
}
/// Rows at `position` of the batch of `rows` rows that `rank` of `world_size` takes; those from `rows` on are repeats,
/// to be counted from 0 again.
struct Share {
  std::int64_t begin, end;
};
Share share_of(std::int64_t rows, const LoaderOptions& options);

/// Set when nobody waits for a batch any more.
using Cancelled = std::atomic<bool>;
struct CancelledError {};

/// What data sets and transforms run under: nothing of the caller's modes, so that what they give does not depend on
/// who calls them.
Context data_context(int threads) noexcept;

/// Reads a part, puts its samples through the transform, and stacks them. The result depends on the part, the data set
/// and the options' seed and transform only. Throws CancelledError soon after `cancelled` is set.
Batch make_batch(const Dataset& data, const LoaderOptions& options, const Part& part, int threads,
                 const Cancelled* cancelled);

/// Puts each row through `f(sample, its index)` and stacks what comes out. Throws SampleError that begins
/// with `what`.
using IndexedTransform = std::function<Sample(Sample, std::int64_t)>;
Batch map_samples(std::string_view what, const Batch& rows, std::span<const std::int64_t> indices,
                  const IndexedTransform& f, const Cancelled* cancelled);

}  // namespace everyo::data
