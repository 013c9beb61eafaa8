#pragma once
#include <span>
#include <vector>

#include "everyo/tensor.h"

namespace everyo::verify_room {

/// `depth` times (Linear 16, Sigmoid), then Linear to 1, on 32 rows of 4 inputs. Layer k draws its weights from
/// default_rng(k).uniform(-1/sqrt(fan_in), 1/sqrt(fan_in)), biases are 0; default_rng(0) draws inputs, then targets,
/// from the standard normal distribution.
class DeepSigmoid {
 public:
  explicit DeepSigmoid(int depth);

  /// New gradients of (sum or mean of squared errors) * factor.
  enum class Loss { mean, sum };
  void backward(double factor = 1, Loss loss = Loss::mean) const;

  /// Weight and bias of each layer, from the first on.
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const Tensor> first_layer() const { return std::span(parameters_).first(2); }
  [[nodiscard]] std::span<const Tensor> last_layer() const { return std::span(parameters_).last(2); }

 private:
  std::vector<Tensor> parameters_;
  Tensor inputs_, targets_;  // [32, 4], [32, 1]
};

/// The gradients of some parameters, one after the other, as a copy: [elements] float32.
Tensor gradients_of(std::span<const Tensor> parameters);

}  // namespace everyo::verify_room
