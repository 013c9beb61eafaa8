#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul for a B that fits the caches: nothing is looked up, and nothing copied but a transposed B. Each element is
/// one sum over k = 0..K-1 in float32.
void small_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                  const MatmulEpilogue<float>& epilogue);

/// max(x, 0) of each element; keeps NaN.
void relu_in_place(float* x, std::int64_t count);

}  // namespace everyo::kernels
