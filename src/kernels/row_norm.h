#pragma once
#include <cstdint>

#include "everyo/dtype.h"
#include "kernels/norm_parameters.h"

// Layer norm: each row of x [rows, width] by its own mean and variance, which are taken about an estimate of the mean,
// so that a mean far from 0 costs no digits. Halves are computed in float32 and rounded once, float64 in float64. The
// bits do not depend on the number of threads.
namespace everyo::kernels {

struct RowNorm {
  DType dtype;
  std::int64_t rows, width;
  NormParameters parameters;  ///< [width]
  double eps;
  bool relu = false;
};

/// y = weight (x - mean) / sqrt(variance + eps) + bias, then ReLU; y may be x.
void row_norm(const RowNorm& norm, const void* x, void* y);

/// Moments and ReLU's mask are made again from x, which may be null for bias alone without ReLU. Gradients of weight
/// and bias are summed over short stretches of rows in the type x is computed in, then in float64.
void row_norm_backward(const RowNorm& norm, const void* x, const void* grad, const NormGradients& gradients);

}  // namespace everyo::kernels
