#pragma once
#include <cstdint>
#include <span>

#include "everyo/communicator.h"
#include "everyo/dtype.h"

namespace everyo::kernels {

/// out[i] = parts[0][i] with parts[1][i] and so on, in that order, for n elements of one dtype: what the ranks of a run
/// make of their values. Floating sums are made in float64 and rounded once; a mean divides that sum; integers wrap. A
/// NaN wins in min and max. `out` may be one of the parts. On the caller's thread.
///
/// With `weights`, one a part, a floating mean is weighted: the sum of weight times part, over the sum of the weights.
/// A part of weight 0 is not looked at.
void combine(ReduceOp how, DType dtype, std::span<const void* const> parts, void* out, std::int64_t n,
             std::span<const double> weights = {}) noexcept;

}  // namespace everyo::kernels
