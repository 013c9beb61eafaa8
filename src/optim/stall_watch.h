#pragma once
#include "everyo/tensor.h"
#include "kernels/optimizer.h"
#include "tensor/pool_allocator.h"

namespace everyo::inline v1 {

/// Room for what one step's rounding swallows, for a group of so many parameters; none is taken until it is asked for.
class StallWatch {
 public:
  explicit StallWatch(std::size_t parameters) : parameters_(parameters) {}
  /// The weights of a step on parameter p, the i-th of the group. master: what Optimizer::master_of() gave; watched:
  /// whether a half without one is watched.
  kernels::WeightTask weights(const Tensor& p, std::size_t i, float* master, bool watched) {
    return {.dtype = p.dtype(),
            .weight = p.bytes(),
            .master = master,
            .stalls = is_half(p.dtype()) && master == nullptr && watched ? at(i) : nullptr,
            .size = p.size()};
  }
  /// f(parameter, what was found).
  template <class F>
  void each(F&& f) const {
    for (std::size_t i = 0; i < stalls_.size(); ++i) f(i, stalls_[i]);
  }

 private:
  kernels::Stalls* at(std::size_t i) {
    if (stalls_.empty()) stalls_.resize(parameters_);
    return &stalls_[i];
  }
  std::size_t parameters_;
  PoolVector<kernels::Stalls> stalls_;
};

}  // namespace everyo::inline v1
