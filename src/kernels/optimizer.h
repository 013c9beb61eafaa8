#pragma once
#include <cstdint>
#include <span>

#include "everyo/dtype.h"

// One pass over memory a step: weight, gradient and state are read once and written once. Halves are computed in
// float32 and rounded once, weights and state alike; state is float32, bfloat16 or float64, and with float64 state
// everything is computed in it.
namespace everyo::kernels {

/// What rounding to a half swallowed of a step. Of the elements that changed before they were rounded (`moved`), those
/// that did not after it, and the largest such weight and change.
struct Stalls {
  std::int64_t moved = 0, stalled = 0;
  float weight = 0, change = 0;
  void add(const Stalls& other);
};

/// The weights of a step. A half may have a float32 master: the step is made on it, and the weight is its rounding. An
/// element whose weight is another number than its master's rounding was set by someone else, and its master begins
/// anew from it.
struct WeightTask {
  DType dtype;  // of weight and gradient, floating
  void* weight;
  float* master = nullptr;   // of a half, or null
  Stalls* stalls = nullptr;  // filled in for a half without a master, unless null
  std::int64_t size = 0;
};

struct SgdTask {
  WeightTask weights;
  DType state_dtype;
  const void* gradient;
  void* velocity;  // null: no momentum
  bool first;      // velocity has no value yet
};
struct SgdScalars {
  double lr, momentum, weight_decay;
  bool nesterov;
};
/// g += weight_decay w; v = momentum v + g (first: g); w -= lr (nesterov: g + momentum v; else v).
void sgd(std::span<const SgdTask> tasks, const SgdScalars& scalars);

struct AdamTask {
  WeightTask weights;
  DType state_dtype;
  const void* gradient;
  void *mean, *square;   // first and second moment
  void* largest;         // null: no amsgrad
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

}  // namespace everyo::kernels
