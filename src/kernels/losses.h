#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Losses that compare two tensors element by element. Halves are computed in float32; float64 has plain code. Sums run
// over fixed blocks in float64.
namespace everyo::kernels {

enum class PairLoss : std::uint8_t {
  squared,             ///< (x - t)^2
  absolute,            ///< |x - t|; gradient 0 at 0
  logistic,            ///< of a logit x: max(x, 0) - x t + log(1 + e^-|x|)
  binary_probability,  ///< of a probability x, clipped to [1e-7, 1 - 1e-7]: -t log x - (1 - t) log(1 - x)
};

struct LossPair {
  DType dtype;  ///< of both
  const void *x, *target;
  std::int64_t count;
};

/// Sum of the losses of all elements.
double loss_sum(PairLoss loss, const LossPair& pair);
/// out[count] of the pair's dtype: each element's loss.
void loss_values(PairLoss loss, const LossPair& pair, void* out);

/// Gradients of x and the target, either of which may be null: derivative * scale, times each[i] of the pair's dtype
/// when that is not null.
struct LossGradient {
  double scale = 1;
  const void* each = nullptr;
  void *grad_x = nullptr, *grad_target = nullptr;
};
void loss_backward(PairLoss loss, const LossPair& pair, const LossGradient& gradient);

/// The first element outside [0, 1], or -1; a NaN is left to the loss.
std::int64_t find_bad_probability(DType dtype, const void* x, std::int64_t count);

}  // namespace everyo::kernels
