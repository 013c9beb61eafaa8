#pragma once
#include <cstdint>

#include "everyo/dtype.h"

namespace everyo::kernels {

/// Two words that a keyed stream of draws belongs to: key() and stream() of a KeyedGenerator.
struct DropoutKey {
  std::uint64_t key = 0, stream = 0;
};

/// y[i] = x[i] / (1 - p) where draw i of the key is at least p, else 0; for 0 <= p < 1. y may be x. Linear in x, so the
/// same call on a gradient is its backward: the mask is drawn again, not kept. Floating dtypes. The bits are the same
/// for any number of threads and any instruction set.
void dropout(DType dtype, const void* x, void* y, std::int64_t n, DropoutKey key, double p);

}  // namespace everyo::kernels
