#pragma once
#include <cstdint>
#include <optional>

#include "everyo/nn/module.h"
#include "everyo/ops.h"

// Norms. Letters: N batch, H W image, C channels; "[..]" any leading dimensions. Parameters and buffers are float32,
// outputs have x's dtype.
namespace everyo::inline v1 {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;            ///< weight of the new batch: running = (1 - momentum) running + momentum batch
  bool affine = true;               ///< weight ones and bias zeros at first; false: neither
  bool track_running_stats = true;  ///< false: no buffers, and eval normalises by its own batch, too
};

/// What BatchNorm1D and BatchNorm2D share; no module of its own.
class EVERYO_API BatchNormState {
 public:
  std::optional<Parameter> weight, bias;            ///< [C]
  std::optional<Buffer> running_mean, running_var;  ///< [C]; the variance is the unbiased one (n - 1)

  [[nodiscard]] std::int64_t num_features() const noexcept { return num_features_; }
  [[nodiscard]] const BatchNormOptions& options() const noexcept { return options_; }

 protected:
  BatchNormState(const char* module, std::int64_t num_features, const BatchNormOptions& options);
  void visit_state(Visitor& v) {
    v("weight", weight)("bias", bias)("running_mean", running_mean)("running_var", running_var);
  }
  [[nodiscard]] Tensor normalise(const Tensor& x, std::int64_t rank, bool training, Activation activation) const;

 private:
  const char* module_;
  std::int64_t num_features_;
  BatchNormOptions options_;
};

/// Batch norm of x [N, C] -> [N, C]: in training by the batch's own mean and biased variance, in eval by the running
/// ones. A training forward moves the running statistics once; not when it is a recomputation, not for an empty batch.
class EVERYO_API BatchNorm1D : public Module<BatchNorm1D>, public BatchNormState {
 public:
  explicit BatchNorm1D(std::int64_t num_features) : BatchNorm1D(num_features, BatchNormOptions{}) {}
  /// Throws ShapeError unless num_features is positive; ValueError "eps" unless positive, "momentum" outside [0, 1].
  BatchNorm1D(std::int64_t num_features, const BatchNormOptions& options)
      : BatchNormState("BatchNorm1D", num_features, options) {}
  void visit(Visitor& v) { visit_state(v); }
  /// With an activation: the same bits as that activation of the plain result. Throws ShapeError "2-D input", "last
  /// axis", and in training for a batch of one row.
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const {
    return normalise(x, 2, training(), activation);
  }
};

/// The same for images: x [N, H, W, C] -> [N, H, W, C], each channel over batch and image. Throws ShapeError "4-D
/// input".
class EVERYO_API BatchNorm2D : public Module<BatchNorm2D>, public BatchNormState {
 public:
  explicit BatchNorm2D(std::int64_t num_features) : BatchNorm2D(num_features, BatchNormOptions{}) {}
  BatchNorm2D(std::int64_t num_features, const BatchNormOptions& options)
      : BatchNormState("BatchNorm2D", num_features, options) {}
  void visit(Visitor& v) { visit_state(v); }
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const {
    return normalise(x, 4, training(), activation);
  }
};

}  // namespace everyo::inline v1
