#include "everyo/nn/layers.h"

#include <fmt/format.h>

namespace everyo::inline v1 {
namespace {

Shape weight_shape(std::int64_t in_features, std::int64_t out_features) {
  if (in_features <= 0 || out_features <= 0)
    throw ShapeError(
        fmt::format("[Linear] in_features {} and out_features {}; both must be positive", in_features, out_features));
  return {in_features, out_features};
}

}  // namespace

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const Options& options)
    : weight(weight_shape(in_features, out_features),
             {.initializer = options.initializer, .seed = options.seed, .dtype = options.dtype}) {
  if (options.bias) bias.emplace(Shape{out_features}, Init{.seed = 0, .dtype = options.dtype});
}

Tensor Linear::forward(const Tensor& x, Activation activation) const {
  const Shape& shape = weight.shape();
  if (x.defined() && (x.rank() == 0 || x.shape()[-1] != shape[0])) [[unlikely]]
    throw ShapeError(fmt::format("[Linear] x has shape {}; its last dimension must be {}, the layer's in_features",
                                 to_string(x.shape()), shape[0]));
  if (bias) return linear(x, weight, *bias, activation);
  return linear(x, weight, Tensor(), activation);
}

Dropout::Dropout(double p, const Options& options) : p_(p), seed_(options.seed) {
  if (!(p >= 0 && p < 1)) throw ValueError(fmt::format("[Dropout] p is {}; it must be in [0, 1)", p));
}

Tensor Dropout::forward(const Tensor& x) const {
  if (!training() || p_ == 0) return x;
  const Scoped<&Context::seed> seed(seed_.value_or(context().seed));
  return dropout(x, p_);
}

Tensor Unflatten::forward(const Tensor& x) const {
  if (x.rank() == 0 || x.shape()[-1] != sizes_.elements())
    throw ShapeError(fmt::format("[Unflatten] x has shape {}; its last dimension must be {}, to become {}",
                                 to_string(x.shape()), sizes_.elements(), to_string(sizes_)));
  Shape shape;
  for (std::int64_t d = 0; d + 1 < x.rank(); ++d) shape.push_back(x.shape()[d]);
  for (const std::int64_t size : sizes_.sizes()) shape.push_back(size);
  return reshape(x, shape.sizes());
}

}  // namespace everyo::inline v1
