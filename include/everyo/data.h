#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "everyo/state.h"
#include "everyo/tensor.h"

// Datasets and the loader. Letters: N samples, D columns of a sample, B rows of a batch.
namespace everyo::inline v1 {

// ---- datasets ----

/// N samples in memory: features [N, ..] and what belongs to each, targets [N, ..] (labels: [N] int64).
struct EVERYO_API ArrayDataset {
  Tensor features, targets;

  ArrayDataset() = default;
  /// Shares both. Throws ShapeError unless both have N rows: "same number of samples".
  ArrayDataset(Tensor all_features, Tensor all_targets);
  [[nodiscard]] std::int64_t size() const noexcept { return features.defined() ? features.shape()[0] : 0; }
  /// A copy of the rows at `indices`, in that order. Throws ShapeError for an index outside 0..N-1.
  [[nodiscard]] ArrayDataset rows(std::span<const std::int64_t> indices) const;
};

/// A table of numbers, row by row.
struct Table {
  std::vector<std::string> header;  ///< empty when the file has none
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;       ///< [rows, columns]
  std::vector<std::int64_t> lines;  ///< [rows] line of the file that each row stands on, from 1
};
struct CsvOptions {
  char delimiter = ',';
  std::optional<bool> has_header{};  ///< unset: the first line is a header when no field of it is a number
};
/// Reads comma-separated numbers: lines end with LF, CR LF or CR; fields may be quoted ("" is a quote inside quotes)
/// and padded with blanks; blank lines at the end are skipped. FileError names file, line and column: a line with
/// another number of fields, a field that is no finite number ("numeric table"), a quote that stays open, no rows.
EVERYO_API Table read_csv(const std::string& path, const CsvOptions& options = {});
/// The same of text in memory; `name` stands for the file in messages.
EVERYO_API Table parse_csv(std::string_view text, std::string_view name, const CsvOptions& options = {});

struct CsvDatasetOptions {
  CsvOptions csv{};
  std::int64_t target_column = -1;  ///< negative: from the last
  std::string target_name{};        ///< of a column in the header; instead of target_column
  DType target_dtype = int64;       ///< int64: whole numbers only
};
/// Features [N, D] float32 and targets [N] from a file of D + 1 columns. Throws as read_csv does; ValueError for a
/// column that the file has not.
EVERYO_API ArrayDataset load_csv_dataset(const std::string& path, const CsvDatasetOptions& options = {});

/// The array in an IDX file, the format of MNIST: uint8, int32 (also of 8 and 16 bits), float32 or float64, of any
/// shape up to 8 dimensions. FileError for a file that is missing, damaged, compressed, or longer than its shape says.
EVERYO_API Tensor load_idx(const std::string& path);
/// The array in a .npy file of NumPy's, format versions 1 to 3, either order: float32, float64, float16, int64, int32,
/// uint8 or bool, little-endian. FileError as load_idx, and for other dtypes by their name.
EVERYO_API Tensor load_npy(const std::string& path);

// ---- digits ----

/// Path of a data file that ships with the library: $EVERYO_DATA, data/ or share/everyo/ beside the library or up to
/// three folders above it. FileError lists where it was looked for.
EVERYO_API std::string find_data_file(const std::string& name);

/// 1,797 handwritten digits of 8 x 8 pixels (UCI "Optical Recognition of Handwritten Digits", test set): features
/// [1797, 64] float32 in [0, 1], labels [1797] int64 0..9. `path` empty: find_data_file("digits.csv").
EVERYO_API ArrayDataset load_digits(const std::string& path = {});

struct Split {
  ArrayDataset train, test;
};
/// Holds out the last `held_out` rows of `default_rng(0).permutation(N)`, whatever other seeds are; both parts in that
/// order. Throws ValueError unless 0 < held_out < N.
EVERYO_API Split hold_out(const ArrayDataset& all, std::int64_t held_out);
/// The digits' fixed split: 1437 rows to train on, 360 held out.
inline Split digits_split(const std::string& path = {}) { return hold_out(load_digits(path), 360); }

// ---- loader ----

struct LoaderOptions {
  std::int64_t batch = 32;  ///< rows of one step, over all ranks
  bool shuffle = false;
  bool drop_last = false;  ///< leave out the last batch of an epoch when it is short
  std::uint64_t seed = 0;  ///< of the shuffles
  std::int32_t rank = 0, world_size = 1;
};

/// What one rank takes from a step: features [B, ..], targets [B, ..].
struct Batch {
  Tensor features, targets;
};

/// The order in which an epoch visits its samples: `default_rng([seed, epoch]).permutation(count)` of NumPy, or
/// 0..count-1. The same on every rank.
EVERYO_API std::vector<std::int64_t> sample_order(std::int64_t count, bool shuffle, std::uint64_t seed,
                                                  std::int64_t epoch);

/// Batches of a dataset. There is one global order of the samples of an epoch, a function of (seed, epoch) alone; batch
/// i is rows i * batch … of it, and rank r of w takes the r-th of w contiguous parts of every batch, the first ones a
/// row larger where it does not divide (a part may have no rows). So all ranks make the same number of steps, and a
/// position means the same for any number of them. Copies nothing but the gathered rows (category input); without
/// shuffling a batch is a view of the dataset.
///
///     for (const auto& [x, y] : loader) …   // the rest of this epoch; afterwards the loader stands at the next one
class EVERYO_API Loader : public Stateful {
 public:
  /// Throws ValueError for a batch below 1 ("batch_size"), a rank outside 0..world_size-1, a dataset without samples.
  explicit Loader(ArrayDataset data, const LoaderOptions& options = {});
  Loader(Tensor features, Tensor targets, const LoaderOptions& options = {})
      : Loader(ArrayDataset(std::move(features), std::move(targets)), options) {}

  /// Steps of an epoch, the same on every rank.
  [[nodiscard]] std::int64_t batches() const noexcept;
  /// Samples of an epoch over all ranks.
  [[nodiscard]] std::int64_t samples() const noexcept;
  [[nodiscard]] const LoaderOptions& options() const noexcept { return options_; }
  [[nodiscard]] const ArrayDataset& dataset() const noexcept { return data_; }

  /// This rank's part of batch i of the current epoch; the position stays. Throws ValueError outside 0..batches()-1.
  [[nodiscard]] Batch batch(std::int64_t i) const;
  /// This rank's part of the next batch; nothing once at the end of an epoch, after which the next epoch begins.
  std::optional<Batch> next();

  /// The epoch being read, from 0, and how many of its samples, over all ranks, have been given out.
  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::int64_t position() const noexcept { return position_; }
  /// Goes to a place in the order. Throws ValueError for an epoch below 0, a position outside 0..samples().
  void seek(std::int64_t epoch, std::int64_t position = 0);

  /// The order (samples, shuffle, seed) and the place in it; batch, rank and world size may differ when it is loaded.
  [[nodiscard]] StateTree state() const override;
  /// Throws StateError for a state of another order.
  void load(const StateTree& state) override;

  class Iterator;
  Iterator begin();
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  [[nodiscard]] Batch rows(std::int64_t first, std::int64_t count) const;

  ArrayDataset data_;
  LoaderOptions options_;
  std::int64_t epoch_ = 0, position_ = 0;
  mutable std::vector<std::int64_t> order_;  // of order_epoch_; made when first needed
  mutable std::int64_t order_epoch_ = -1;
};

class Loader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  explicit Iterator(Loader& loader) : loader_(&loader), batch_(loader.next()) {}
  const Batch& operator*() const noexcept { return *batch_; }
  const Batch* operator->() const noexcept { return &*batch_; }
  Iterator& operator++() {
    batch_ = loader_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& i, std::default_sentinel_t) noexcept { return !i.batch_; }

 private:
  Loader* loader_;
  std::optional<Batch> batch_;
};
inline Loader::Iterator Loader::begin() { return Iterator(*this); }

}  // namespace everyo::inline v1
