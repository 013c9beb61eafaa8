#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Vector code under the passes over channels (channel_passes.h says what they compute).
namespace everyo::kernels {

/// Rows that are summed in the type x is computed in, before the sum goes to float64.
inline constexpr std::int64_t stretch_rows = 32;

/// `rows` rows of `width` columns, next to each other in memory, and what each column needs: arrays of the type that
/// x is computed in (float, for float64 double), about their middle `center`.
struct ChannelRows {
  const void *x, *grad;
  void* out;
  std::int64_t rows, width;
  const void *center, *scale, *shift;
  const void *grad_scale, *x_scale, *offset;
  double *sum, *product;  ///< [width], added to
};

/// sum += x - center, product += (x - center)^2.
void channel_rows_moments(DType dtype, const ChannelRows& rows);
/// out = scale (x - center) + shift, then ReLU.
void channel_rows_apply(DType dtype, bool relu, const ChannelRows& rows);
/// sum += grad, product += grad (x - center), unless null; grad counts as 0 where ReLU cut. x is read for either.
void channel_rows_gradient_sums(DType dtype, bool relu, const ChannelRows& rows);
/// out = grad_scale grad + x_scale (x - center) + offset; without x only the first term.
void channel_rows_gradient(DType dtype, bool relu, bool with_x, const ChannelRows& rows);

}  // namespace everyo::kernels
