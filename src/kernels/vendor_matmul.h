#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul through oneDNN, cut in a part for each thread along its rows, or in fixed parts along its columns. Primitives
/// and memory objects are kept per thread; a new shape costs about 0.4 ms once, a known one nothing but the lookup.
/// Returns false, having done nothing, where the cut could show in the bits: with all of oneDNN's implementations but
/// its AVX-512 one, and for transpose_a.
bool vendor_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                   const MatmulEpilogue<float>& epilogue);

}  // namespace everyo::kernels
