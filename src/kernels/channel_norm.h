#pragma once
#include <cstdint>

#include "everyo/dtype.h"
#include "kernels/norm_parameters.h"

// Normalisation of x [samples, rows, channels] by moments that each group of neighbouring channels has for itself:
// batch norm is one sample of all rows with as many groups as channels, group norm has a sample of its own for each of
// the batch. All is computed from float64 moments; y is rounded once. The bits do not depend on the number of threads.
namespace everyo::kernels {

struct NormLayout {
  std::int64_t samples, rows, channels, groups;
};

/// One call: its input, parameters, and what follows.
struct ChannelNorm {
  DType dtype;
  NormLayout layout;
  NormParameters parameters;
  double eps;
  bool relu = false;
};

/// moments [2, samples, groups]: means, then mean squared deviations; 0 for no rows.
void norm_moments(DType dtype, const NormLayout& layout, const void* x, double* moments);
/// The two halves of `moments` [2, count] as values of `dtype`; variances divided by n - 1 in place of n.
void store_moments(const double* moments, std::int64_t count, std::int64_t n, DType dtype, void* mean, void* variance);
/// Moments from a mean and a variance [count] of their own.
void load_moments(const NormParameter& mean, const NormParameter& variance, std::int64_t count, double* moments);

/// y = weight (x - mean) / sqrt(variance + eps) + bias, then ReLU.
void channel_norm(const ChannelNorm& norm, const double* moments, const void* x, void* y);

/// `fixed`: the moments were given, not taken of x. Without ReLU x may be null for bias alone, with fixed moments also
/// for x; and moments may be null for bias alone.
void channel_norm_backward(const ChannelNorm& norm, const double* moments, bool fixed, const void* x, const void* grad,
                           const NormGradients& gradients);

}  // namespace everyo::kernels
