#pragma once
#include "everyo/nn/module.h"
#include "everyo/ops.h"

// Pools as modules. Letters: N batch, H W an image, C channels.
namespace everyo::inline v1 {

/// max_pool2d: [N, H, W, C] -> [N, OH, OW, C].
class EVERYO_API MaxPool2D : public Module<MaxPool2D> {
 public:
  using Options = MaxPoolOptions;
  explicit MaxPool2D(Size2D pool_size = 2) : MaxPool2D(pool_size, Options{}) {}
  /// Throws ShapeError for sizes that fit no image: "must be positive", a window that could lie wholly in the padding.
  MaxPool2D(Size2D pool_size, const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) const { return max_pool2d(x, pool_size_, options_); }

 private:
  Size2D pool_size_;
  Options options_;
};

/// avg_pool2d: [N, H, W, C] -> [N, OH, OW, C].
class EVERYO_API AvgPool2D : public Module<AvgPool2D> {
 public:
  using Options = AvgPoolOptions;
  explicit AvgPool2D(Size2D pool_size = 2) : AvgPool2D(pool_size, Options{}) {}
  /// Throws as MaxPool2D.
  AvgPool2D(Size2D pool_size, const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) const { return avg_pool2d(x, pool_size_, options_); }

 private:
  Size2D pool_size_;
  Options options_;
};

/// adaptive_avg_pool2d: [N, H, W, C] -> [N, output height, output width, C].
class EVERYO_API AdaptiveAvgPool2D : public Module<AdaptiveAvgPool2D> {
 public:
  /// Throws ShapeError "must be positive".
  explicit AdaptiveAvgPool2D(Size2D output);
  [[nodiscard]] Tensor forward(const Tensor& x) const { return adaptive_avg_pool2d(x, output_); }

 private:
  Size2D output_;
};

/// global_avg_pool2d: [N, H, W, C] -> [N, C].
struct EVERYO_API GlobalAvgPool2D : Module<GlobalAvgPool2D> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return global_avg_pool2d(x); }
};

}  // namespace everyo::inline v1
