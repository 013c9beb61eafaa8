#pragma once
#include "kernels/convolution.h"

namespace everyo::kernels {

/// small_convolution of bfloat16 on the instruction that multiplies pairs of it, up to 32 outputs. It sums in float32
/// and takes subnormal numbers for 0. Returns false, and does nothing, below Isa::avx512_bf16.
bool small_bfloat16_convolution(const ConvolutionProblem& problem, std::int64_t images, const BFloat16* x,
                                const float* weight, const float* bias, bool relu, BFloat16* y);

}  // namespace everyo::kernels
