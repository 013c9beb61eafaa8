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

/// Layer norm of x [.., D] -> [.., D], each D by its own mean and variance; D stands for the trailing axes given.
class EVERYO_API LayerNorm : public Module<LayerNorm> {
 public:
  struct Options {
    double eps = 1e-5;
    bool affine = true;  ///< weight ones and bias zeros at first, [D]; false: neither
  };
  explicit LayerNorm(std::int64_t width) : LayerNorm(Shape{width}, Options{}) {}
  LayerNorm(std::int64_t width, const Options& options) : LayerNorm(Shape{width}, options) {}
  explicit LayerNorm(const Shape& normalized_shape) : LayerNorm(normalized_shape, Options{}) {}
  /// Throws ShapeError "positive normalized_shape", ValueError "eps".
  LayerNorm(const Shape& normalized_shape, const Options& options);
  void visit(Visitor& v) { v("weight", weight)("bias", bias); }
  /// With an activation: the same bits as that activation of the plain result. Throws ShapeError "trailing axes".
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const;
  [[nodiscard]] const Shape& normalized_shape() const noexcept { return shape_; }

  std::optional<Parameter> weight, bias;

 private:
  Shape shape_;
  double eps_;
};

/// Group norm of x [N, .., C] -> [N, .., C], each sample's groups of C / groups channels by their own mean and
/// variance.
class EVERYO_API GroupNorm : public Module<GroupNorm> {
 public:
  struct Options {
    double eps = 1e-5;
    bool affine = true;  ///< weight ones and bias zeros at first, [C]; false: neither
  };
  GroupNorm(std::int64_t groups, std::int64_t channels) : GroupNorm(groups, channels, Options{}) {}
  /// Throws ShapeError unless both are positive and groups divide channels, ValueError "eps".
  GroupNorm(std::int64_t groups, std::int64_t channels, const Options& options);
  void visit(Visitor& v) { v("weight", weight)("bias", bias); }
  /// As LayerNorm's. Throws ShapeError "last axis".
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const;
  [[nodiscard]] std::int64_t groups() const noexcept { return groups_; }

  std::optional<Parameter> weight, bias;

 private:
  std::int64_t groups_, channels_;
  double eps_;
};

}  // namespace everyo::inline v1
