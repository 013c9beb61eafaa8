#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Softmax and its logarithm along the middle of [outer, classes, inner], shifted by the greatest element. Halves are
// computed in float32 and rounded once; float64 has plain code of its own. x and out may be the same memory.
namespace everyo::kernels {

struct SoftmaxShape {
  std::int64_t outer, classes, inner;
};

/// y = e^x / sum e^x.
void softmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y);
/// y = x - log sum e^x.
void log_softmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y);

/// grad_x = y (grad - sum grad y).
void softmax_backward(DType dtype, const SoftmaxShape& shape, const void* y, const void* grad, void* grad_x);
/// grad_x = grad - e^y sum grad.
void log_softmax_backward(DType dtype, const SoftmaxShape& shape, const void* y, const void* grad, void* grad_x);

}  // namespace everyo::kernels
