#pragma once
#include <algorithm>

#include "kernels/optimizer.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {

/// body(begin, end, stalls) for blocks of `grain` elements; stalls is null unless the task counts them.
template <class Body>
void for_each_block(const WeightTask& task, std::int64_t grain, Body&& body) {
  if (task.stalls == nullptr)
    return parallel_for(task.size, grain, [&](std::int64_t begin, std::int64_t end) { body(begin, end, nullptr); });
  const std::int64_t blocks = (task.size + grain - 1) / grain;
  const Scratch<Stalls> found(blocks);  // one a block: threads share nothing
  std::fill_n(found.data(), blocks, Stalls{});
  parallel_for(task.size, grain,
               [&](std::int64_t begin, std::int64_t end) { body(begin, end, &found.data()[begin / grain]); });
  for (std::int64_t i = 0; i < blocks; ++i) task.stalls->add(found.data()[i]);
}

}  // namespace everyo::kernels
