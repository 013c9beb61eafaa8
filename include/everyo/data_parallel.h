#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "everyo/nn.h"
#include "everyo/parallel.h"

// Data parallelism: every rank has the whole model and a part of each batch; gradients are averaged.
namespace everyo::inline v1 {

/// Which of `count` samples are a rank's: one contiguous block, [first, end).
struct Block {
  std::int64_t first = 0, end = 0;
  [[nodiscard]] std::int64_t size() const noexcept { return end - first; }
  friend bool operator==(const Block&, const Block&) = default;
};
/// Equal blocks; the rest of `count` is dropped, or with drop_last = false given to the first ranks, one each. Throws
/// ValueError (distributed) for a world_size below 1 ("at least 1"), a rank outside it ("rank must be"), and fewer
/// samples than ranks ("cannot be split").
EVERYO_API Block shard_indices(std::int64_t count, int rank, int world_size, bool drop_last = true);

struct AverageOptions {
  double weight = 1;  ///< of this rank's gradients: the rows or targets that its mean loss was over, 0 or more
};
/// The gradient of every parameter becomes the weighted mean over the ranks, the same bits on all: that of the loss
/// over all their samples, if each rank gives how many its own mean was over. A parameter without a gradient here
/// counts as zero if it has one on any rank; without one on all it stays so. Returns the sum of the weights; if that is
/// 0, nothing was changed and no step should follow.
///
/// A loss that is a sum, not a mean, gives 1/world_size of the gradient: scale it, or make it a mean. Throws ValueError
/// for a weight that is neither 0 nor from 1e-30 to 1e30, StateError when ranks' gradients are multiplied by different
/// loss scales, and DistributedError when their parameters differ.
EVERYO_API double average_gradients(std::span<const Tensor> parameters, ProcessGroup& group,
                                    const AverageOptions& options = {});

/// What becomes of buffers (running statistics), which each rank updates from its own samples.
enum class BufferSync : std::uint8_t {
  mean,   ///< their mean over the ranks after each backward that averages gradients; integers: the largest
  first,  ///< rank 0's, at the same time
  none,   ///< each rank keeps its own
};

struct DataParallelOptions {
  std::size_t bucket_bytes = std::size_t{1} << 20;  ///< of gradients averaged in one exchange, 1 or more
  BufferSync buffers = BufferSync::mean;
  bool buffers_each_step = true;  ///< false: only when sync_buffers() is called, such as once an epoch
  bool broadcast_weights = true;  ///< rank 0's at the start; false: they must be equal already
};

/// What exchanging cost the last backward.
struct ExchangeTimes {
  double exposed = 0;  ///< seconds in which backward was over and its exchange was not
  double buffers = 0;  ///< seconds of these that exchanged buffers
  std::int64_t bytes = 0;
  std::int64_t buckets = 0, early = 0;  ///< early: those given to the exchange before the last gradient had come
};

/// Averages a model's gradients over a group while backward runs. Gradients live in memory that the ranks share, in
/// buckets; a bucket is exchanged once all its gradients are there. Buckets begin with the last parameters; the first
/// backward that rank 0 makes orders them anew, as its gradients came. All that average_gradients says holds: unused
/// parameters, weights, bits.
///
///     DataParallel parallel(net, *group);
///     SGD optimizer(net.parameters(), {.lr = 0.1});
///     for (const Batch& batch : loader) {          // a rank's part
///       optimizer.zero_grad();
///       parallel.set_weight(batch.features.shape()[0]);
///       cross_entropy(net(batch.features), batch.targets).backward();
///       optimizer.step();
///     }
///
/// Every rank makes the same number of backward passes (an exception in one ends the group); one that has no samples
/// left calls take_part() instead. It refers to model and group, which must outlive it. What is trained is chosen
/// before: a gradient of a parameter that needed none then is a StateError, as is one that has moved to another
/// DataParallel's memory.
class EVERYO_API DataParallel {
 public:
  /// Throws DistributedError when the ranks' options differ, or their models in names, shapes, dtypes or what needs
  /// gradients, or, without broadcast_weights, in values: the message names the first parameter that does.
  DataParallel(ModuleBase& model, ProcessGroup& group, const DataParallelOptions& options = {});
  /// The same for what is no module: its parameters, and a function that gives its buffers.
  DataParallel(const StateDict& parameters, std::function<StateDict()> buffers, ProcessGroup& group,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// How many rows or targets the next losses of this rank are means over. Throws ValueError as average_gradients does.
  void set_weight(double weight);
  /// Instead of a backward, on a rank without samples: with weight zero, this once.
  void take_part();
  /// Buffers become the same on all ranks by the rule of the options, each rank counting as much; all call it.
  void sync_buffers();

  /// While it lives, backward passes only add up here; the first one after it exchanges the sum.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DataParallel& parallel) noexcept : parallel_(parallel) { ++parallel_.no_sync_; }
    ~NoSync() { --parallel_.no_sync_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
  };
  NoSync no_sync() noexcept { return NoSync(*this); }

  [[nodiscard]] const ExchangeTimes& times() const noexcept { return times_; }
  /// The sum of the weights of the last exchange; 0: no rank had samples, and no step should follow.
  [[nodiscard]] double total_weight() const noexcept { return total_weight_; }

 private:
  struct Bucket;
  struct Walk;
  void fill_buckets(const std::vector<std::size_t>& order);
  void order_by_arrival();
  void begin(double weight);
  void ready(std::size_t parameter);
  void launch(Bucket& bucket);
  void launch_those_that_are_complete();
  void finish();
  void settle() noexcept;
  void exchange_buffers(const std::shared_ptr<ProcessGroup::Weights>& weights);

  std::function<StateDict()> buffers_of_model_;
  ProcessGroup& group_;
  DataParallelOptions options_;
  std::vector<Tensor> parameters_, frozen_;
  std::vector<std::uint64_t> hooks_;  // of both
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<bool> is_ready_;
  std::vector<std::size_t> arrived_;  // parameters, as their gradients came in this backward
  bool ordered_ = false;              // buckets are in such an order
  std::shared_ptr<ProcessGroup::Weights> weights_;
  double weight_ = 1, own_weight_[1] = {1}, total_weight_ = 0;
  Work weights_work_;
  std::size_t launched_ = 0, early_ = 0;
  bool running_ = false;
  int no_sync_ = 0;
  ExchangeTimes times_;
};

}  // namespace everyo::inline v1
