#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Gradients as a whole: their norm, clipping, and what loss scaling does to them. Floating dtypes; halves are computed
// in float32 and rounded once.
namespace everyo::kernels {

/// Elements that a thread takes at a time, and that a sum of squares has in a block.
inline constexpr std::int64_t gradient_block = 1 << 15;

/// Sum of squares in float64 over fixed blocks: the same for any thread count.
double sum_of_squares(DType dtype, const void* values, std::int64_t size);
/// values *= factor.
void scale_in_place(DType dtype, void* values, std::int64_t size, double factor);
/// Into [-limit, limit]; NaN stays.
void clip_in_place(DType dtype, void* values, std::int64_t size, double limit);
/// values /= divisor, 1 or more; whether all are finite, in the same pass.
bool divide_in_place(DType dtype, void* values, std::int64_t size, double divisor);
/// Whether none is infinite or NaN.
bool all_finite(DType dtype, const void* values, std::int64_t size);

}  // namespace everyo::kernels
