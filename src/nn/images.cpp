#include "everyo/nn/images.h"

#include <fmt/format.h>

namespace everyo::inline v1 {
namespace {

void require_positive(std::string_view what, Size2D size) {
  if (size.height <= 0 || size.width <= 0)
    throw ShapeError(fmt::format("[Conv2D] {} is ({}, {}); both must be positive", what, size.height, size.width));
}

Shape weight_shape(std::int64_t in_channels, std::int64_t out_channels, Size2D kernel_size,
                   const Conv2D::Options& options) {
  if (in_channels <= 0 || out_channels <= 0)
    throw ShapeError(fmt::format("[Conv2D] in_channels {} and out_channels {}; the layer needs positive channel counts",
                                 in_channels, out_channels));
  require_positive("kernel_size", kernel_size);
  require_positive("stride", options.stride);
  require_positive("dilation", options.dilation);
  const std::int64_t groups = options.groups;
  if (groups <= 0) throw ShapeError(fmt::format("[Conv2D] groups is {}; it must be positive", groups));
  if (in_channels % groups != 0 || out_channels % groups != 0)
    throw ShapeError(fmt::format(
        "[Conv2D] {} groups do not divide in_channels {} and out_channels {}; both must be multiples of groups", groups,
        in_channels, out_channels));
  return {kernel_size.height, kernel_size.width, in_channels / groups, out_channels};
}

}  // namespace

Conv2D::Conv2D(std::int64_t in_channels, std::int64_t out_channels, Size2D kernel_size, const Options& options)
    : weight(weight_shape(in_channels, out_channels, kernel_size, options),
             {.initializer = options.initializer, .seed = options.seed, .dtype = options.dtype}),
      options_{options.stride, options.padding, options.dilation, options.groups} {
  if (options.bias) bias.emplace(Shape{out_channels}, Init{.seed = 0, .dtype = options.dtype});
}

Tensor Conv2D::forward(const Tensor& x, Activation activation) const {
  const std::int64_t channels = weight.shape()[2] * options_.groups;
  if (x.defined() && x.rank() != 4) [[unlikely]]
    throw ShapeError(
        fmt::format("[Conv2D] x has shape {}; it must be a 4-D tensor, (N, H, W, C)", to_string(x.shape())));
  if (x.defined() && x.shape()[3] != channels) [[unlikely]]
    throw ShapeError(
        fmt::format("[Conv2D] x has shape {}; its last dimension must be {} channel(s), the layer's "
                    "in_channels{}",
                    to_string(x.shape()), channels,
                    x.shape()[1] == channels ? "; channels come last here: transpose(x, {0, 2, 3, 1})" : ""));
  Conv2dOptions options = options_;
  options.activation = activation;
  if (bias) return conv2d(x, weight, *bias, options);
  return conv2d(x, weight, Tensor(), options);
}

}  // namespace everyo::inline v1
