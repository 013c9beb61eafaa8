#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "everyo/tensor.h"

namespace everyo::verify_room {

/// `depth` times (Linear 16, Sigmoid), then Linear to 1, on 32 rows of 4 inputs. Layer k draws its weights from
/// default_rng(k).uniform(-1/sqrt(fan_in), 1/sqrt(fan_in)), biases are 0; default_rng(0) draws inputs, then targets,
/// from the standard normal distribution.
class DeepSigmoid {
 public:
  explicit DeepSigmoid(int depth);

  enum class Loss { mean, sum };
  struct Pass {
    double factor = 1;  ///< of the loss: its scale
    Loss loss = Loss::mean;
    std::optional<DType> half{};       ///< forward and loss under autocast to this
    bool secretly_in_float32 = false;  ///< the sabotage: values are halves, gradients float32 all the way
  };
  /// Mean of the squared errors.
  [[nodiscard]] Tensor loss() const { return loss(Pass{}); }
  /// New gradients of (sum or mean of squared errors) * factor. They stay multiplied by it.
  void backward(const Pass& pass) const;
  void backward() const { backward(Pass{}); }

  /// Weight and bias of each layer, from the first on.
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const Tensor> first_layer() const { return std::span(parameters_).first(2); }
  [[nodiscard]] std::span<const Tensor> last_layer() const { return std::span(parameters_).last(2); }

 private:
  [[nodiscard]] Tensor predict(const Pass& pass) const;
  [[nodiscard]] Tensor loss(const Pass& pass) const;

  std::vector<Tensor> parameters_;
  Tensor inputs_, targets_;  // [32, 4], [32, 1]
};

inline constexpr int deep = 12, shallow = 4;  // hidden layers
/// Powers of two of the loss scale in P3's tables. tests/oracle/make_verify_reference.py has the same.
inline constexpr std::array exponents{0, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56};

/// "2^0", "2^16", …
std::vector<std::string> scale_columns();

/// Whose gradients a column of P3's tables counts.
enum class Part { first, last, all };
std::span<const Tensor> part_of(const DeepSigmoid& net, Part part);

/// x as a half holds it, in its own dtype; gradients pass unrounded.
Tensor rounded_in_forward(const Tensor& x, DType half);

double norm(const Tensor& x);
double count_zeros(const Tensor& x);

/// The gradients of some parameters, one after the other, as a copy: [elements] float32.
Tensor gradients_of(std::span<const Tensor> parameters);

}  // namespace everyo::verify_room
