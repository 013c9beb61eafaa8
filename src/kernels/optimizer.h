#pragma once
#include <cstdint>
#include <span>

#include "everyo/dtype.h"

// One pass over memory a step: weight, gradient and state are read once and written once. Halves are computed in
// float32 and rounded once; state is float32 or float64, and with float64 state everything is computed in it.
namespace everyo::kernels {

struct SgdTask {
  DType dtype;        // of weight and gradient, floating
  DType state_dtype;  // float32 or float64
  void* weight;
  const void* gradient;
  void* velocity;  // null: no momentum
  std::int64_t size;
  bool first;  // velocity has no value yet
};
struct SgdScalars {
  double lr, momentum, weight_decay;
  bool nesterov;
};
/// g += weight_decay w; v = momentum v + g (first: g); w -= lr (nesterov: g + momentum v; else v).
void sgd(std::span<const SgdTask> tasks, const SgdScalars& scalars);

struct AdamTask {
  DType dtype, state_dtype;
  void* weight;
  const void* gradient;
  void *mean, *square;  // first and second moment
  void* largest;        // null: no amsgrad
  std::int64_t size;
  double step_size;      // lr / (1 - beta1^t)
  double square_factor;  // 1 / sqrt(1 - beta2^t)
};
struct AdamScalars {
  double beta1, beta2, eps;
  double weight_decay;  // added to the gradient
  double decay_factor;  // multiplies the weight first: 1 - lr weight_decay when decoupled, else 1
};
/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= step_size m / (sqrt(v) square_factor + eps).
void adam(std::span<const AdamTask> tasks, const AdamScalars& scalars);

/// Sum of squares in float64 over fixed blocks: the same for any thread count.
double sum_of_squares(DType dtype, const void* values, std::int64_t size);
/// values *= factor, rounded once.
void scale_in_place(DType dtype, void* values, std::int64_t size, double factor);
/// Into [-limit, limit]; NaN stays.
void clip_in_place(DType dtype, void* values, std::int64_t size, double limit);
/// Index of the first element that is infinite or NaN; -1 when all are finite.
std::int64_t first_nonfinite(DType dtype, const void* values, std::int64_t size);

}  // namespace everyo::kernels
