#pragma once
#include "kernels/matmul.h"

namespace everyo::kernels {

/// matmul through oneDNN, with `threads` threads. Primitives and memory objects are kept per thread; a new shape costs
/// about 0.4 ms once, a known one nothing but the lookup. Returns false, having done nothing, where oneDNN would use an
/// implementation that splits sums by threads: all but its AVX-512 one, and that one too for transpose_a.
bool vendor_matmul(const MatmulProblem& problem, int threads, const float* a, const float* b, float* c,
                   const MatmulEpilogue<float>& epilogue);

}  // namespace everyo::kernels
