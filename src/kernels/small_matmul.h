#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul for a B that fits the caches: nothing is looked up, and nothing copied but a transposed B, and halves, which
/// are widened first. Each element is one sum over k = 0..K-1 in float32, rounded once.
void small_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                  const MatmulEpilogue<float>& epilogue);
void small_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, Float16* c,
                  const MatmulEpilogue<Float16>& epilogue);
void small_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
                  const MatmulEpilogue<BFloat16>& epilogue);
/// As matmul_widened.
void small_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, float* c);
void small_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c);

/// Adds bias [count] unless that is null, then max(., 0) of each element with `relu`; each step is rounded.
void finish_in_place(Float16* x, std::int64_t count, const Float16* bias, bool relu);
void finish_in_place(BFloat16* x, std::int64_t count, const BFloat16* bias, bool relu);

/// max(x, 0) of each element; keeps NaN.
void relu_in_place(float* x, std::int64_t count);

}  // namespace everyo::kernels
