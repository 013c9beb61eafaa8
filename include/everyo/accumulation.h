#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "everyo/context.h"
#include "everyo/data.h"

// Gradient accumulation: one optimizer step over a batch that is too large for memory at once. Letters: N rows of a
// batch, K micro-batches it is cut into.
namespace everyo::inline v1 {

/// How many targets [N, ..] a mean over them divides by: the rows; with `ignore_index`, of whole numbers, the elements
/// that are not it, as cross_entropy counts.
EVERYO_API std::int64_t count_targets(const Tensor& targets, std::optional<std::int64_t> ignore_index = {});

/// How the targets of a batch are counted; it must be what the loss divides by.
struct EVERYO_API TargetCount {
  std::optional<std::int64_t> ignore_index{};               ///< the loss's own
  std::function<std::int64_t(const Tensor&)> of_targets{};  ///< instead of count_targets; 0 or more
  /// Throws ValueError when of_targets gives less than 0.
  [[nodiscard]] std::int64_t operator()(const Tensor& targets) const;
};

/// A part of a batch, worked on by itself.
struct MicroBatch {
  Tensor features, targets;  ///< rows [n, ..] of the batch's, shared
  std::int64_t count = 0;    ///< of its targets, 1 or more
  double weight = 1;         ///< count / that of the whole batch: the factor on its mean loss
  std::int32_t number = 0;   ///< of the cut, from first_number: a part of the key of random draws
};
struct MicroBatchOptions {
  std::int64_t accumulate = 1;  ///< K; fewer parts when there are fewer rows
  TargetCount count{};
  std::int32_t first_number = 0;  ///< of the first part: ranks give numbers that no other has
};
/// A batch cut into K contiguous parts, the first ones a row larger where it does not divide. Gradients of the weighted
/// losses add up to the gradient of the mean over the whole batch, however uneven the parts are:
///
///     for (const Batch& batch : loader) {
///       optimizer.zero_grad();
///       const MicroBatches parts(batch, {.accumulate = 4});
///       for (const MicroBatch& part : parts)
///         (cross_entropy(net(part.features), part.targets) * part.weight).backward();
///       if (!parts.empty()) optimizer.step();
///     }
///
/// Rows that pad the batch are left out, and so are parts without a target that counts: a batch without any has no
/// parts, and should make no step.
/// Batch norm sees a part, not the batch, and needs two rows of it. While it is iterated over, Context::micro_batch is
/// the part's number, so that each draws a dropout mask of its own; it is put back at the end of this object's life, in
/// the same thread.
class [[nodiscard]] EVERYO_API MicroBatches {
 public:
  /// Throws ValueError for `accumulate` below 1, ShapeError unless features and targets have the same number of rows.
  explicit MicroBatches(const Batch& batch, const MicroBatchOptions& options = {});

  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
  [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
  /// Of the whole batch's targets.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }

  class Iterator;
  [[nodiscard]] Iterator begin() const noexcept;
  [[nodiscard]] Iterator end() const noexcept;

 private:
  std::vector<MicroBatch> parts_;
  std::int64_t count_ = 0;
  Scoped<&Context::micro_batch> number_{context().micro_batch};
};

class MicroBatches::Iterator {
 public:
  using value_type = MicroBatch;
  using difference_type = std::ptrdiff_t;
  Iterator() = default;
  Iterator(const MicroBatch* part, const MicroBatch* end) noexcept : part_(part), end_(end) { enter(); }
  const MicroBatch& operator*() const noexcept { return *part_; }
  const MicroBatch* operator->() const noexcept { return part_; }
  Iterator& operator++() noexcept {
    ++part_;
    enter();
    return *this;
  }
  void operator++(int) noexcept { ++*this; }
  friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.part_ == b.part_; }

 private:
  void enter() const noexcept {
    if (part_ != end_) context().micro_batch = part_->number;
  }
  const MicroBatch *part_ = nullptr, *end_ = nullptr;
};
inline MicroBatches::Iterator MicroBatches::begin() const noexcept {
  return {parts_.data(), parts_.data() + parts_.size()};
}
inline MicroBatches::Iterator MicroBatches::end() const noexcept {
  const MicroBatch* const end = parts_.data() + parts_.size();
  return {end, end};
}

/// What one optimizer step is the mean over.
struct EffectiveBatch {
  std::int64_t rows = 0;         ///< of a full batch, over all ranks
  std::int64_t micro_batch = 0;  ///< most rows of one forward
  std::int64_t accumulate = 1;   ///< micro-batches of a rank's part
  std::int64_t ranks = 1;
};
/// Of a loader's batches cut into `accumulate` parts on each rank. Throws ValueError for numbers below 1.
EVERYO_API EffectiveBatch effective_batch(const LoaderOptions& loader, std::int64_t accumulate = 1);
/// "32 = micro-batch 8 x accumulation 4 x ranks 1"; "micro-batch up to 3" where parts differ.
EVERYO_API std::string to_string(const EffectiveBatch& batch);

}  // namespace everyo::inline v1
