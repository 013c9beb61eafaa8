#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Convolutions of images, channels last, and their gradients.
//   x [N, H, W, C]  weight [KH, KW, C / G, O]  y [N, OH, OW, O]
//   N images, C channels, O outputs, G groups: output o sees the C / G channels of group o / (O / G)
namespace everyo::kernels {

/// A window's way along one axis: `output` positions, `before` and `after` cells of zeros around the image.
struct ConvolutionAxis {
  std::int64_t input = 1, window = 1, stride = 1, dilation = 1, before = 0, after = 0, output = 1;
  friend constexpr bool operator==(const ConvolutionAxis&, const ConvolutionAxis&) = default;
};

/// Sizes may be 0 but for windows, strides, dilations and groups; groups divide C and O.
struct ConvolutionProblem {
  DType dtype = float32;  ///< of every operand, a floating one
  std::int64_t images = 0, channels = 1, outputs = 1, groups = 1;
  ConvolutionAxis height{}, width{};
  friend constexpr bool operator==(const ConvolutionProblem&, const ConvolutionProblem&) = default;

  /// Elements of one image, of its result, and of the weight.
  [[nodiscard]] constexpr std::int64_t image_size() const { return height.input * width.input * channels; }
  [[nodiscard]] constexpr std::int64_t result_size() const { return height.output * width.output * outputs; }
  [[nodiscard]] constexpr std::int64_t weight_size() const {
    return height.window * width.window * (channels / groups) * outputs;
  }
};

// All three run on up to max_threads() threads, over chunks of whole images that the problem alone decides, so that the
// bits are the same for any number of threads. Halves are summed in float32, float64 in float64, and rounded once.
// Where the processor multiplies pairs of bfloat16 (isa() of avx512_bf16 and above), it takes subnormal ones for 0.

/// y = the convolution, plus bias [O] unless that is null, each element max(., 0) with `relu`; NaN stays NaN.
void convolution(const ConvolutionProblem& problem, const void* x, const void* weight, const void* bias, bool relu,
                 void* y);
/// grad_x, from the gradient dy of y.
void convolution_data_gradient(const ConvolutionProblem& problem, const void* weight, const void* dy, void* grad_x);
/// grad_weight, or with `accumulate` that added to what is there.
void convolution_weight_gradient(const ConvolutionProblem& problem, const void* x, const void* dy, void* grad_weight,
                                 bool accumulate);

}  // namespace everyo::kernels
