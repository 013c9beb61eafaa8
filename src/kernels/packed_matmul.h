#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul that copies its operands into panels, converting halves on the way, sums in float32 (float64 for double) and
/// rounds once in the store. K is summed in blocks of equal size, at most 1024, in order; nothing else enters the
/// order. T: float, double, Float16, BFloat16.
template <class T>
void packed_matmul(const MatmulProblem& problem, const T* a, const T* b, T* c, const MatmulEpilogue<T>& epilogue);
/// As matmul_widened.
void packed_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, float* c);
void packed_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c);

}  // namespace everyo::kernels
