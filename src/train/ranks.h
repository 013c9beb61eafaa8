#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "everyo/data_parallel.h"
#include "everyo/parallel.h"
#include "everyo/train.h"
#include "everyo/virtual_shards.h"

namespace everyo::train {

/// What a Trainer shares with other ranks. Without a group, and without virtual shards, it is a world of one in which
/// nothing is exchanged.
class Ranks {
 public:
  /// Throws ValueError for virtual shards below 0, or fewer than ranks.
  Ranks(ProcessGroup* group, std::int64_t shards);

  [[nodiscard]] int rank() const noexcept { return group_ == nullptr ? 0 : group_->rank(); }
  [[nodiscard]] int world_size() const noexcept { return group_ == nullptr ? 1 : group_->world_size(); }
  [[nodiscard]] bool is_several() const noexcept { return world_size() > 1; }
  [[nodiscard]] std::int64_t shards() const noexcept { return shards_; }
  /// What a scaler agrees over; null for one rank.
  [[nodiscard]] Agreement* agreement() noexcept { return agreement_ ? &*agreement_ : nullptr; }

  /// While it lives the model's gradients are averaged or summed over the ranks; at its start weights become rank 0's.
  class [[nodiscard]] Exchange {
   public:
    Exchange(Ranks& ranks, ModuleBase& model);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    Ranks& ranks_;
  };
  /// Null unless there are several ranks and no virtual shards.
  [[nodiscard]] DataParallel* parallel() noexcept { return parallel_ ? &*parallel_ : nullptr; }
  /// Null without virtual shards.
  [[nodiscard]] VirtualShards* virtual_shards() noexcept { return virtual_ ? &*virtual_ : nullptr; }

  /// Of all ranks, element by element, on all ranks, in rank order.
  void sum(std::span<double> values);
  /// Whether it is so on any rank.
  [[nodiscard]] bool any(bool here);
  /// For a failure that another rank will tell of: waits for that.
  void wait_for_others();
  /// This rank fails: so will whatever the others wait for.
  void fail(std::string_view why) noexcept;

 private:
  ProcessGroup* group_;  // null: there is only this rank
  std::unique_ptr<ProcessGroup> alone_;
  std::int64_t shards_;
  std::optional<AgreementOver> agreement_;
  std::optional<DataParallel> parallel_;
  std::optional<VirtualShards> virtual_;
};

/// Rows of shard `shard` of a batch of `rows`, in the batch: contiguous parts, of which the first are one larger; the
/// last ones are empty where there are fewer rows than shards.
Block rows_of_shard(std::int64_t rows, std::int64_t shard, std::int64_t shards);

}  // namespace everyo::train
