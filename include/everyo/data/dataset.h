#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "everyo/error.h"
#include "everyo/tensor.h"

// What a data set is. Letters: N samples, B rows of a batch.
namespace everyo::inline v1 {

/// Rows of a data set: features [B, ..], targets [B, ..]. `const auto& [x, y] = batch;` takes it apart.
struct Batch {
  Tensor features, targets;
  /// So many of the last rows fill a rank's part up and are samples given elsewhere, too. A metric that leaves them out
  /// counts each sample once.
  std::int64_t padding = 0;

  [[nodiscard]] std::int64_t rows() const { return features.shape()[0]; }
  /// Rows that count.
  [[nodiscard]] std::int64_t counted() const { return rows() - padding; }
};
template <std::size_t I>
requires(I < 2) const Tensor& get(const Batch& batch) noexcept { return I == 0 ? batch.features : batch.targets; }
template <std::size_t I>
requires(I < 2) Tensor& get(Batch& batch) noexcept { return I == 0 ? batch.features : batch.targets; }
template <std::size_t I>
requires(I < 2) Tensor && get(Batch&& batch)
noexcept { return std::move(I == 0 ? batch.features : batch.targets); }

/// Samples by number. Its functions are called from several threads at once.
class EVERYO_API Dataset {
 public:
  virtual ~Dataset();
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// The rows at `indices`, each in 0..size()-1, in that order and in memory of their own: the caller may change them.
  /// Each row's shape and dtype are those of all others.
  [[nodiscard]] virtual Batch rows(std::span<const std::int64_t> indices) const = 0;
  /// Rows first … first+count-1, which may share the data set's memory. By default a call of rows().
  /// Throws ShapeError for rows outside 0..size()-1.
  [[nodiscard]] virtual Batch range(std::int64_t first, std::int64_t count) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;
};

/// N samples in memory: features [N, ..] and what belongs to each, targets [N, ..] (labels: [N] int64). Copying shares
/// both.
class EVERYO_API ArrayDataset : public Dataset {
 public:
  Tensor features, targets;

  ArrayDataset() = default;
  /// Shares both. Throws ShapeError unless both have N rows: "same number of samples".
  ArrayDataset(Tensor all_features, Tensor all_targets);
  /// The rows of a batch that count; shares them. Throws as the other does, and for a padding outside 0..rows.
  explicit ArrayDataset(const Batch& rows);
  ~ArrayDataset() override;
  ArrayDataset(const ArrayDataset&) = default;
  ArrayDataset(ArrayDataset&&) = default;
  ArrayDataset& operator=(const ArrayDataset&) = default;
  ArrayDataset& operator=(ArrayDataset&&) = default;

  [[nodiscard]] std::int64_t size() const noexcept override { return features.defined() ? features.shape()[0] : 0; }
  /// A copy. Throws ShapeError for an index outside 0..N-1, and when the tensors no longer have N rows each.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;
  /// A view. Throws ShapeError for rows outside 0..N-1, and when the tensors no longer have N rows each.
  [[nodiscard]] Batch range(std::int64_t first, std::int64_t count) const override;
};

/// Some of another data set's samples, in an order of one's own: `SubsetDataset(data, {4, 0})`. Copying shares both.
class EVERYO_API SubsetDataset : public Dataset {
 public:
  /// Throws ValueError without a data set, ShapeError for an index outside it.
  SubsetDataset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> indices);
  template <std::derived_from<Dataset> D>
  SubsetDataset(D data, std::vector<std::int64_t> indices)
      : SubsetDataset(std::make_shared<const D>(std::move(data)), std::move(indices)) {}
  ~SubsetDataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override { return static_cast<std::int64_t>(indices_->size()); }
  /// Throws ShapeError for an index outside 0..size()-1.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;

 private:
  std::shared_ptr<const Dataset> data_;
  std::shared_ptr<const std::vector<std::int64_t>> indices_;
};

/// A sample that could not be read or transformed. what() names it; the kind is the cause's, and the cause itself is
/// what `std::rethrow_if_nested` throws.
class EVERYO_API SampleError : public Error, public std::nested_exception {
 public:
  SampleError(const std::string& message, ErrorKind kind, std::int64_t sample)
      : Error(message, kind), sample_(sample) {}
  ~SampleError() override;
  /// Its index in the data set.
  [[nodiscard]] std::int64_t sample() const noexcept { return sample_; }

 private:
  std::int64_t sample_;
};

}  // namespace everyo::inline v1

template <>
struct std::tuple_size<everyo::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, everyo::Batch> {
  using type = everyo::Tensor;
};
