#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "everyo/data/dataset.h"
#include "everyo/data/transform.h"
#include "everyo/state.h"

// From a data set to the batches of a step. Letters: N samples, B rows of a batch.
namespace everyo::data {
struct Part;
class Workers;
}  // namespace everyo::data
namespace everyo::inline v1 {

/// What becomes of a batch whose rows the ranks cannot share evenly.
enum class Uneven : std::uint8_t {
  spread,  ///< the first ranks take a row more; a rank may have none
  pad,     ///< all take as many as the first; Batch::padding says how many of them are repeats
  drop,    ///< the rows that are over are left out, and a batch with fewer rows than ranks is
};

/// Most workers of a loader.
inline constexpr std::int32_t most_loader_workers = 256;

struct LoaderOptions {
  std::int64_t batch = 32;  ///< rows of one step, over all ranks
  bool shuffle = false;
  bool drop_last = false;  ///< leave out the last batch of an epoch when it is short
  std::uint64_t seed = 0;  ///< of the shuffles and of the transform's draws
  std::int32_t rank = 0, world_size = 1;
  Uneven uneven = Uneven::spread;
  std::int64_t shards = 0;  ///< of VirtualShards: a rank takes the rows of its own ones; 0: a part of the batch itself
  RandomTransform transform{};  ///< of each sample, made anew in each epoch
  /// Threads that make batches ahead of the step; 0: the caller's makes each when it is asked for. The rows and their
  /// bits are the same for any number.
  std::int32_t workers = 0;
  std::int32_t prefetch = 0;  ///< most batches made ahead, with workers; 0: two for each worker
};

/// The order in which an epoch visits its samples: `default_rng([seed, epoch]).permutation(count)` of NumPy, or
/// 0..count-1. The same on every rank.
EVERYO_API std::vector<std::int64_t> sample_order(std::int64_t count, bool shuffle, std::uint64_t seed,
                                                  std::int64_t epoch);

/// Batches of a dataset. There is one global order of the samples of an epoch, a function of (seed, epoch) alone; batch
/// i is rows i * batch … of it, and rank r of w takes the r-th of w contiguous parts of every batch, sized as `uneven`
/// and `shards` say. So all ranks make the same number of steps, and a position means the same for any number of them.
///
/// Copies nothing but the gathered rows (category input); without shuffling and transform a batch shares the data set's
/// memory. Data sets and transforms run without gradients, autocast or random keys of the caller's context, on workers
/// with one thread a kernel. Each batch is an event "data" of kind data, as long as the caller had to wait for it.
///
///     for (const auto& [x, y] : loader) …   // the rest of this epoch; afterwards the loader stands at the next one
class EVERYO_API Loader : public Stateful {
 public:
  /// Throws ValueError for a batch below 1 ("batch_size"), a rank outside 0..world_size-1, workers outside 0..256, a
  /// prefetch below 0, no data set or one without samples, shards below 0, fewer than ranks, or with another `uneven`
  /// than spread, and when drop_last or Uneven::drop leave nothing.
  explicit Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options = {});
  explicit Loader(ArrayDataset data, const LoaderOptions& options = {})
      : Loader(std::make_shared<const ArrayDataset>(std::move(data)), options) {}
  template <std::derived_from<Dataset> D>
  explicit Loader(D data, const LoaderOptions& options = {})
      : Loader(std::make_shared<const D>(std::move(data)), options) {}
  Loader(Tensor features, Tensor targets, const LoaderOptions& options = {})
      : Loader(ArrayDataset(std::move(features), std::move(targets)), options) {}
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader() override;

  /// Steps of an epoch, the same on every rank.
  [[nodiscard]] std::int64_t batches() const noexcept;
  /// Samples of an epoch over all ranks, those counted that Uneven::drop leaves out within a batch.
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }
  [[nodiscard]] const LoaderOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Dataset& dataset() const noexcept { return *data_; }

  /// This rank's part of batch i of the current epoch, made by the caller's thread; the position stays; not
  /// from several threads at once. Throws
  /// ValueError outside 0..batches()-1, SampleError for what a sample's data set or transform throws.
  [[nodiscard]] Batch batch(std::int64_t i) const;
  /// This rank's part of the next batch; nothing once at the end of an epoch, after which the next epoch begins. A
  /// SampleError is thrown where its batch is due, however early a worker met it; the position stays before it. Throws
  /// Error (backend) when the system has no thread for a worker.
  std::optional<Batch> next();

  /// The epoch being read, from 0, and how many of its samples, over all ranks, have been given out. What workers have
  /// made ahead is not among them.
  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::int64_t position() const noexcept { return position_; }
  /// Goes to a place in the order. Throws ValueError for an epoch outside 0..2^62, a position outside
  /// 0..samples().
  void seek(std::int64_t epoch, std::int64_t position = 0);

  /// The order (samples, shuffle, seed) and the place in it; all other options may differ when it is loaded.
  [[nodiscard]] StateTree state() const override;
  /// Throws StateError for a state of another order, or of a place that does not exist.
  void load(const StateTree& state) override;

  class Iterator;
  Iterator begin();
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  struct Order {
    std::int64_t epoch = -1;
    std::vector<std::int64_t> samples;
  };
  struct Place {
    std::int64_t epoch = 0, position = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Deleter {
    void operator()(data::Workers* workers) const noexcept;
  };
  [[nodiscard]] std::int64_t settled(std::int64_t position) const noexcept;
  [[nodiscard]] Place after(const Place& place) const noexcept;
  [[nodiscard]] const std::vector<std::int64_t>& order(std::int64_t epoch) const;
  [[nodiscard]] data::Part part(const Place& place) const;
  void ask_ahead();
  Batch take_from_workers();

  std::shared_ptr<const Dataset> data_;
  LoaderOptions options_;
  std::int64_t samples_ = 0, epoch_ = 0, position_ = 0;
  mutable std::array<Order, 2> orders_;              // of an even and an odd epoch; made when first needed
  std::unique_ptr<data::Workers, Deleter> workers_;  // begun by the first next()
  Place planned_;                                    // what the workers have not been asked for yet
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
