#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Passes over x [samples, rows, channels] that see each channel of each sample by itself: what batch norm (one sample
// of all rows) and group norm are made of. Halves are computed in float32 and rounded once, float64 in float64; sums
// are float64 over short stretches of rows. What a pass takes and gives per channel is float64, [samples, channels].
// The bits do not depend on the number of threads. Empty x: nothing is written, except that sums are 0.
namespace everyo::kernels {

struct ChannelLayout {
  std::int64_t samples, rows, channels;
};

/// Mean over the rows of x, and of (x - mean)^2; each sample's own first row is what they are taken about, so a mean
/// far from 0 costs no digits. rows > 0.
void channel_moments(DType dtype, const ChannelLayout& layout, const void* x, double* mean, double* variance);

/// y = scale (x - mean) + shift, then ReLU; y may be x.
struct ChannelMap {
  const double *mean, *scale, *shift;
  bool relu = false;
};
void channel_apply(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const void* x, void* y);

/// Sums over the rows of grad and of grad (x - mean), where grad counts as 0 if ReLU cut y. `product` may be null
/// without ReLU, and then x too.
void channel_gradient_sums(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const void* x,
                           const void* grad, double* sum, double* product);

/// grad_x = grad_scale grad + x_scale (x - mean) + offset, with grad as above; grad_x may be grad. Without x_scale (and
/// offset) only the first term, and x may be null without ReLU.
struct ChannelSlopes {
  const double *grad_scale, *x_scale, *offset;
};
void channel_gradient(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const ChannelSlopes& slopes,
                      const void* x, const void* grad, void* grad_x);

}  // namespace everyo::kernels
