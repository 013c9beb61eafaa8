#include "everyo/nn/pools.h"

#include <fmt/format.h>

#include "ops/pool_shape.h"

namespace everyo::inline v1 {

MaxPool2D::MaxPool2D(Size2D pool_size, const Options& options) : pool_size_(pool_size), options_(options) {
  require_pool("MaxPool2D", pool_size,
               {options.stride.value_or(pool_size), options.padding, options.dilation, options.ceil_mode});
}

AvgPool2D::AvgPool2D(Size2D pool_size, const Options& options) : pool_size_(pool_size), options_(options) {
  require_pool("AvgPool2D", pool_size, {options.stride.value_or(pool_size), options.padding, 1, options.ceil_mode});
}

AdaptiveAvgPool2D::AdaptiveAvgPool2D(Size2D output) : output_(output) {
  if (output.height <= 0 || output.width <= 0)
    throw ShapeError(fmt::format("[AdaptiveAvgPool2D] the output is ({}, {}); both sizes must be positive",
                                 output.height, output.width));
}

}  // namespace everyo::inline v1
