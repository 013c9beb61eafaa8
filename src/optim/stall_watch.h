#pragma once
#include "kernels/optimizer.h"
#include "tensor/pool_allocator.h"

namespace everyo::inline v1 {

/// Room for what one step's rounding swallows, for a group of so many parameters; none is taken until it is asked for.
class StallWatch {
 public:
  explicit StallWatch(std::size_t parameters) : parameters_(parameters) {}
  kernels::Stalls* at(std::size_t parameter) {
    if (stalls_.empty()) stalls_.resize(parameters_);
    return &stalls_[parameter];
  }
  /// f(parameter, what was found).
  template <class F>
  void each(F&& f) const {
    for (std::size_t i = 0; i < stalls_.size(); ++i) f(i, stalls_[i]);
  }

 private:
  std::size_t parameters_;
  PoolVector<kernels::Stalls> stalls_;
};

}  // namespace everyo::inline v1
