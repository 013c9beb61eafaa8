#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "everyo/data_parallel.h"
#include "everyo/nn.h"
#include "everyo/parallel.h"

// The same bits for any number of workers.
namespace everyo::inline v1 {

/// Cuts each global batch into V fixed shards, whoever works on them: threads of this process, or ranks of a group.
/// Each shard is a forward and backward of its own, with random draws of its own; gradients and buffer updates are
/// summed over the shards by one fixed binary tree. So a step has the same bits on 1 thread, on 8, on 4 processes or 3,
/// and a run may go on with another number of them. Against a plain run of the whole batch the difference is rounding.
/// V should be at least the number of workers, and need not be a multiple.
///
///     VirtualShards shards(net, *group, 8);
///     optimizer.zero_grad();
///     shards.run([&](std::int64_t shard) {       // of own_shards(), side by side on the threads there are
///       const Block rows = shard_indices(x.shape()[0], int(shard), 8, false);
///       (mse_loss(net(slice(x, {{rows.first, rows.end}})), …) * (rows.size() / N)).backward();
///     });
///     optimizer.step();
///
/// It refers to model and group, which must outlive it.
class EVERYO_API VirtualShards {
 public:
  /// Throws ValueError for fewer than 1 or more than 65536 shards, and for fewer shards than ranks; what DataParallel
  /// throws for models that differ, whose weights become rank 0's.
  VirtualShards(ModuleBase& model, ProcessGroup& group, std::int64_t shards);
  /// The same for what is no module: its parameters, and a function that gives its buffers.
  VirtualShards(const StateDict& parameters, std::function<StateDict()> buffers, ProcessGroup& group,
                std::int64_t shards);

  [[nodiscard]] std::int64_t shards() const noexcept { return shards_; }
  /// Those of this rank.
  [[nodiscard]] Block own_shards() const noexcept { return own_; }

  /// Calls forward_backward for each shard of this rank, several at once: it must only read what it shares. Kernels
  /// inside run on one thread, gradients go to the shard's own place, and Context::shard and micro_batch are the
  /// shard's number. A shard without samples runs no backward. Then every parameter's gradient is the sum over all
  /// shards, the same bits on all ranks, and buffers have taken up the mean of what the shards observed. Gradients that
  /// were there before are overwritten. Throws what forward_backward throws, by the lowest shard, which ends the group.
  void run(const std::function<void(std::int64_t shard)>& forward_backward);

  /// Fills in the values [V] of shards that other ranks have; each rank has set those of its own.
  void share(std::span<double> values);

 private:
  std::function<StateDict()> buffers_of_model_;
  ProcessGroup& group_;
  std::int64_t shards_;
  Block own_;
  std::vector<Tensor> parameters_;
};

}  // namespace everyo::inline v1
