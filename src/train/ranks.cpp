#include "train/ranks.h"

#include <fmt/format.h>

#include "data/part.h"

namespace everyo::train {

Ranks::Ranks(ProcessGroup* group, std::int64_t shards) : group_(group), shards_(shards) {
  if (shards < 0 || (shards > 0 && shards < world_size()))
    throw ValueError(fmt::format("[Trainer] virtual_shards {} for {} ranks; give at least one a rank, or 0 for none",
                                 shards, world_size()));
  if (group_ == nullptr && shards > 0) {
    alone_ = single_process_group();
    group_ = alone_.get();
  }
  if (is_several()) agreement_.emplace(*group_);
}

Ranks::Exchange::Exchange(Ranks& ranks, ModuleBase& model) : ranks_(ranks) {
  if (ranks.shards_ > 0)
    ranks.virtual_.emplace(model, *ranks.group_, ranks.shards_);
  else if (ranks.is_several())
    ranks.parallel_.emplace(model, *ranks.group_);
}
Ranks::Exchange::~Exchange() {
  ranks_.virtual_.reset();
  ranks_.parallel_.reset();
}

void Ranks::sum(std::span<double> values) {
  if (is_several()) group_->all_reduce(values);
}

bool Ranks::any(bool here) {
  double value[] = {here ? 1.0 : 0.0};
  sum(value);
  return value[0] > 0;
}

void Ranks::wait_for_others() {
  if (is_several()) group_->barrier();
}

void Ranks::fail(std::string_view why) noexcept {
  if (is_several()) group_->end(why);
}

Block rows_of_shard(std::int64_t rows, std::int64_t shard, std::int64_t shards) {
  return {data::part_begin(rows, shards, shard), data::part_begin(rows, shards, shard + 1)};
}

}  // namespace everyo::train
