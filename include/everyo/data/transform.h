#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "everyo/data/dataset.h"
#include "everyo/random.h"

// What happens to samples between the data set and the batch. Letters: N samples.
namespace everyo::inline v1 {

/// One row of a data set, without the dimension of rows.
struct Sample {
  Tensor features, targets;
};
/// A function of a sample alone; from several threads at once. It may change the tensors it is given, and all it gives
/// are of one shape and dtype.
using Transform = std::function<Sample(Sample sample)>;
/// One that draws: `generator` depends on (seed, epoch, index of the sample) alone, so that what comes out does not
/// depend on threads, on ranks, or on where a run was resumed.
using RandomTransform = std::function<Sample(Sample sample, Generator& generator)>;

/// The generator that a loader's random transform is given.
EVERYO_API Generator sample_generator(std::uint64_t seed, std::int64_t epoch, std::int64_t index);

/// Another data set whose samples pass through a function whenever they are read.
class EVERYO_API TransformDataset : public Dataset {
 public:
  /// Throws ValueError without a data set or a function.
  TransformDataset(std::shared_ptr<const Dataset> data, Transform transform);
  template <std::derived_from<Dataset> D>
  TransformDataset(D data, Transform transform)
      : TransformDataset(std::make_shared<const D>(std::move(data)), std::move(transform)) {}
  ~TransformDataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override { return data_->size(); }
  /// Throws SampleError for what the function throws, and when it gives another shape or dtype than for the sample
  /// before; ShapeError when the data set gives other rows than were asked for.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;

 private:
  std::shared_ptr<const Dataset> data_;
  Transform transform_;
};

struct CacheOptions {
  std::int64_t bytes = std::int64_t{1} << 30;  ///< of rows kept
};

/// Another data set whose rows are kept once they were read, until there is no more room: for what is slow to read or
/// to transform and the same each time. The bytes are counted under the category input. Nothing is thrown out for
/// another row: in passes over all of them each is needed again as soon as any other.
class EVERYO_API CachedDataset : public Dataset {
 public:
  /// Throws ValueError without a data set, or for bytes below 0.
  explicit CachedDataset(std::shared_ptr<const Dataset> data, const CacheOptions& options = {});
  template <std::derived_from<Dataset> D>
  explicit CachedDataset(D data, const CacheOptions& options = {})
      : CachedDataset(std::make_shared<const D>(std::move(data)), options) {}
  ~CachedDataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override { return data_->size(); }
  /// Throws ShapeError for an index outside 0..size()-1, when the data set gives other rows than were asked for, and
  /// when they differ in shape or dtype from those kept.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;

  /// Rows kept so far, and their bytes.
  [[nodiscard]] std::int64_t cached() const;
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Rows;
  std::shared_ptr<const Dataset> data_;
  std::shared_ptr<Rows> rows_;  // of all copies
};

}  // namespace everyo::inline v1
