#include "everyo/nn/norms.h"

#include <fmt/format.h>

namespace everyo::inline v1 {
namespace {

void check_eps(const char* module, double eps) {
  if (!(eps > 0)) throw ValueError(fmt::format("[{}] eps is {}; it must be positive", module, eps));
}

void make_affine(std::optional<Parameter>& weight, std::optional<Parameter>& bias, const Shape& shape) {
  weight.emplace(shape, Init{.initializer = init::ones(), .seed = 0});
  bias.emplace(shape, Init{.seed = 0});
}

Tensor tensor_of(const std::optional<Parameter>& parameter) {
  if (!parameter) return {};
  if (!parameter->tensor().defined()) throw StateError("[norm] the layer was moved from; use the one it was moved to");
  return parameter->tensor();
}

}  // namespace

BatchNormState::BatchNormState(const char* module, std::int64_t num_features, const BatchNormOptions& options)
    : module_(module), num_features_(num_features), options_(options) {
  if (num_features <= 0)
    throw ShapeError(fmt::format("[{}] num_features is {}; it must be positive", module, num_features));
  check_eps(module, options.eps);
  if (!(options.momentum >= 0 && options.momentum <= 1))
    throw ValueError(fmt::format("[{}] momentum is {}; it must be in [0, 1]", module, options.momentum));
  if (options.affine) make_affine(weight, bias, {num_features});
  if (options.track_running_stats) {
    running_mean.emplace(Shape{num_features}, 0);
    running_var.emplace(Shape{num_features}, 1);
  }
}

Tensor BatchNormState::normalise(const Tensor& x, std::int64_t rank, bool training, Activation activation) const {
  if (x.defined() && x.rank() != rank)
    throw ShapeError(fmt::format("[{}] x is {}; it takes {}-D input, {}", module_, to_string(x.shape()), rank,
                                 rank == 2 ? "(batch, features)" : "(batch, height, width, channels)"));
  if (x.defined() && x.shape()[-1] != num_features_)
    throw ShapeError(fmt::format("[{}] x is {}; its last axis must be {}, the layer's num_features", module_,
                                 to_string(x.shape()), num_features_));
  const NormOptions options{.eps = options_.eps, .activation = activation};
  const Tensor w = tensor_of(weight), b = tensor_of(bias);
  if (!training && running_mean) return batch_norm(x, *running_mean, *running_var, w, b, options);
  BatchNormResult result = batch_norm(x, w, b, options);
  if (training && running_mean && x.size() != 0) {
    running_mean->post(cast(result.mean, running_mean->tensor().dtype()), options_.momentum);
    running_var->post(cast(result.variance, running_var->tensor().dtype()), options_.momentum);
  }
  return std::move(result.y);
}

LayerNorm::LayerNorm(const Shape& normalized_shape, const Options& options)
    : shape_(normalized_shape), eps_(options.eps) {
  bool positive = shape_.rank() > 0;
  for (const std::int64_t size : shape_.sizes()) positive = positive && size > 0;
  if (!positive)
    throw ShapeError(fmt::format("[LayerNorm] the normalized shape is {}; it must be a positive normalized_shape",
                                 to_string(shape_)));
  check_eps("LayerNorm", eps_);
  if (options.affine) make_affine(weight, bias, shape_);
}

Tensor LayerNorm::forward(const Tensor& x, Activation activation) const {
  return layer_norm(x, shape_, tensor_of(weight), tensor_of(bias), {.eps = eps_, .activation = activation});
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, const Options& options)
    : groups_(groups), channels_(channels), eps_(options.eps) {
  if (groups <= 0 || channels <= 0 || channels % groups != 0)
    throw ShapeError(fmt::format(
        "[GroupNorm] {} groups of {} channels; both must be positive, and groups divide channels", groups, channels));
  check_eps("GroupNorm", eps_);
  if (options.affine) make_affine(weight, bias, {channels});
}

Tensor GroupNorm::forward(const Tensor& x, Activation activation) const {
  if (x.defined() && (x.rank() < 2 || x.shape()[-1] != channels_))
    throw ShapeError(
        fmt::format("[GroupNorm] x is {}; it must have a batch, and its last axis {}, the layer's channels",
                    to_string(x.shape()), channels_));
  return group_norm(x, groups_, tensor_of(weight), tensor_of(bias), {.eps = eps_, .activation = activation});
}

}  // namespace everyo::inline v1
