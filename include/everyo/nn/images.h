#pragma once
#include <cstdint>
#include <optional>

#include "everyo/nn/module.h"
#include "everyo/ops.h"

// Layers of images, channels last: N images, H and W cells, C channels, O outputs, G groups.
namespace everyo::inline v1 {

/// y = conv2d(x, W) + b: x [N, H, W, C] -> [N, OH, OW, O], weight [KH, KW, C / G, O], bias [O] zeros at first.
class EVERYO_API Conv2D : public Module<Conv2D> {
 public:
  struct Options {
    Size2D stride = 1;
    Padding padding{};  ///< "valid", "same", or cells
    Size2D dilation = 1;
    std::int64_t groups = 1;
    std::optional<std::uint64_t> seed{};
    bool bias = true;
    Initializer initializer = "he_uniform";
    DType dtype = float32;
  };
  Conv2D(std::int64_t in_channels, std::int64_t out_channels, Size2D kernel_size = 3)
      : Conv2D(in_channels, out_channels, kernel_size, Options{}) {}
  /// Throws ShapeError "positive channel counts", "must be positive" (sizes, groups), "do not divide" (groups);
  /// DTypeError unless the dtype is floating.
  Conv2D(std::int64_t in_channels, std::int64_t out_channels, Size2D kernel_size, const Options& options);

  void visit(Visitor& v) { v("weight", weight)("bias", bias); }
  /// With an activation: the same bits as that activation of the plain result. Throws ShapeError "4-D tensor", "must
  /// be <C> channel", "does not fit".
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const;

  [[nodiscard]] Size2D kernel_size() const { return {weight.shape()[0], weight.shape()[1]}; }
  [[nodiscard]] Size2D stride() const noexcept { return options_.stride; }
  [[nodiscard]] const Padding& padding() const noexcept { return options_.padding; }
  [[nodiscard]] Size2D dilation() const noexcept { return options_.dilation; }
  [[nodiscard]] std::int64_t groups() const noexcept { return options_.groups; }

  Parameter weight;
  std::optional<Parameter> bias;

 private:
  Conv2dOptions options_;
};

}  // namespace everyo::inline v1
