#pragma once
#include "everyo/dtype.h"
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul on the instruction that multiplies pairs of bfloat16 (VDPBF16PS): twice the products of float32. It sums in
/// float32, takes subnormal numbers for 0 and makes none. Returns false, and does nothing, below Isa::avx512_bf16.
bool bfloat16_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
                     const MatmulEpilogue<BFloat16>& epilogue);
/// As matmul_widened.
bool bfloat16_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c);

}  // namespace everyo::kernels
