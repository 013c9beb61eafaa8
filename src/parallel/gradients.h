#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "everyo/nn.h"
#include "everyo/parallel.h"
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// What ranks know of each other's gradients.
struct GradientsElsewhere {
  std::vector<bool> present{};  ///< a rank has one, for each parameter
  float scale = 1;              ///< the loss scale that all are multiplied by
};
/// Throws StateError when ranks' scales differ.
GradientsElsewhere compare_gradients(std::span<const Tensor> parameters, ProcessGroup& group);

/// Zero, in the slot's own memory, where a parameter has no gradient.
void fill_absent(const Tensor& parameter);
/// The slot's memory has been written: its gradient is there.
void note_written(const Tensor& parameter, float scale);

/// Throws DistributedError when the ranks' models differ. Rank 0's weights and buffers become all ranks', or must be
/// theirs already.
void agree_on_model(const StateDict& parameters, const StateDict& buffers, ProcessGroup& group, bool broadcast_weights);

}  // namespace everyo::inline v1
