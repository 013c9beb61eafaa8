#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul through oneDNN, cut in a part for each thread along its rows, or in fixed parts along its columns. Primitives
/// and memory objects are kept per thread; a new shape costs about 0.4 ms once, a known one nothing but the lookup.
/// Returns false, having done nothing, where the cut could show in the bits: with all of oneDNN's implementations but
/// its AVX-512 one, and for transpose_a.
bool vendor_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                   const MatmulEpilogue<float>& epilogue);

/// Whether oneDNN multiplies these halves on instructions that our own kernels do not use: bfloat16 on AMX's tiles,
/// float16 with AVX512-FP16. Sums are float32, over parts that the problem alone decides.
template <class T>
bool vendor_takes_halves(const MatmulProblem& problem);
/// matmul by it; returns false, and does nothing, where it is not taken.
template <class T>
bool vendor_matmul_of_halves(const MatmulProblem& problem, const T* a, const T* b, T* c,
                             const MatmulEpilogue<T>& epilogue);

}  // namespace everyo::kernels
