#include "kernels/channel_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/channel_passes.h"
#include "kernels/convert.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

// Parameters in float64; `missing` where there are none.
void widen_into(double* to, const NormParameter& from, std::int64_t count, double missing) {
  if (from.values)
    convert(from.dtype, from.values, float64, to, count);
  else
    std::fill_n(to, count, missing);
}

// What the passes over channels take: the group's moments and the parameters of each channel of each sample.
class Terms {
 public:
  Terms(const ChannelNorm& norm, const double* moments)
      : layout_(norm.layout), eps_(norm.eps), moments_(moments), values_(3 * channels() + 2 * layout_.channels) {
    widen_into(weight(), norm.parameters.weight, layout_.channels, 1);
    widen_into(weight() + layout_.channels, norm.parameters.bias, layout_.channels, 0);
    for_each([&](std::int64_t i, std::int64_t c, std::int64_t group) {
      mean()[i] = moments_ ? moments_[group] : 0;
      scale()[i] = weight()[c] * inverse(group);
      shift()[i] = weight()[layout_.channels + c];
    });
  }
  [[nodiscard]] ChannelMap map(bool relu) const { return {mean(), scale(), shift(), relu}; }
  [[nodiscard]] std::int64_t channels() const { return layout_.samples * layout_.channels; }
  [[nodiscard]] std::int64_t groups() const { return layout_.samples * layout_.groups; }
  /// 1 / sqrt(variance + eps)
  [[nodiscard]] double inverse(std::int64_t group) const {
    return moments_ ? 1 / std::sqrt(moments_[groups() + group] + eps_) : 1;
  }
  [[nodiscard]] double* weight() const { return values_.data() + 3 * channels(); }
  [[nodiscard]] double* scale() const { return values_.data() + channels(); }

  /// f(i, c, group) for channel c of each sample, the i-th in all.
  template <class F>
  void for_each(F&& f) const {
    const std::int64_t size = layout_.channels / std::max<std::int64_t>(layout_.groups, 1);
    for (std::int64_t s = 0, i = 0; s < layout_.samples; ++s)
      for (std::int64_t c = 0; c < layout_.channels; ++c, ++i) f(i, c, s * layout_.groups + c / size);
  }

 private:
  [[nodiscard]] double* mean() const { return values_.data(); }
  [[nodiscard]] double* shift() const { return values_.data() + 2 * channels(); }

  NormLayout layout_;
  double eps_;
  const double* moments_;
  Scratch<double> values_;
};

ChannelLayout channels_of(const NormLayout& layout) { return {layout.samples, layout.rows, layout.channels}; }

// A group's moments from its channels', [samples, channels].
void merge_channels(const NormLayout& layout, const double* mean, const double* variance, double* moments) {
  const std::int64_t size = layout.channels / std::max<std::int64_t>(layout.groups, 1),
                     groups = layout.samples * layout.groups;
  for (std::int64_t g = 0; g < groups; ++g) {
    double total = 0, spread = 0;
    for (std::int64_t c = g * size; c < (g + 1) * size; ++c) total += mean[c];
    moments[g] = total / static_cast<double>(size);
    for (std::int64_t c = g * size; c < (g + 1) * size; ++c)
      spread += variance[c] + (mean[c] - moments[g]) * (mean[c] - moments[g]);
    moments[groups + g] = spread / static_cast<double>(size);
  }
}

void store_gradient(const NormGradient& to, const double* values, std::int64_t count) {
  if (to.values) convert(float64, values, to.dtype, to.values, count);
}

}  // namespace

void norm_moments(DType dtype, const NormLayout& layout, const void* x, double* moments) {
  const std::int64_t groups = layout.samples * layout.groups, channels = layout.samples * layout.channels;
  if (layout.rows == 0) {
    std::fill_n(moments, 2 * groups, 0.0);
  } else if (layout.groups == layout.channels) {
    channel_moments(dtype, channels_of(layout), x, moments, moments + groups);
  } else {
    const Scratch<double> each(2 * channels);
    channel_moments(dtype, channels_of(layout), x, each.data(), each.data() + channels);
    merge_channels(layout, each.data(), each.data() + channels, moments);
  }
}

void store_moments(const double* moments, std::int64_t count, std::int64_t n, DType dtype, void* mean, void* variance) {
  convert(float64, moments, dtype, mean, count);
  const Scratch<double> unbiased(count);
  const double factor = n > 1 ? static_cast<double>(n) / static_cast<double>(n - 1) : 1;
  for (std::int64_t i = 0; i < count; ++i) unbiased.data()[i] = factor * moments[count + i];
  convert(float64, unbiased.data(), dtype, variance, count);
}

void load_moments(const NormParameter& mean, const NormParameter& variance, std::int64_t count, double* moments) {
  widen_into(moments, mean, count, 0);
  widen_into(moments + count, variance, count, 1);
}

void channel_norm(const ChannelNorm& norm, const double* moments, const void* x, void* y) {
  const Terms terms(norm, moments);
  channel_apply(norm.dtype, channels_of(norm.layout), terms.map(norm.relu), x, y);
}

void channel_norm_backward(const ChannelNorm& norm, const double* moments, bool fixed, const void* x, const void* grad,
                           const NormGradients& gradients) {
  const NormLayout& layout = norm.layout;
  const ChannelLayout channels = channels_of(layout);
  const Terms terms(norm, moments);
  const ChannelMap map = terms.map(norm.relu);
  const bool of_moments = gradients.x && !fixed;
  const std::int64_t count = terms.channels();
  const Scratch<double> sums(2 * count);
  double *const sum = sums.data(), *const product = sums.data() + count;
  if (of_moments || gradients.weight.values || gradients.bias.values)
    channel_gradient_sums(norm.dtype, channels, map, x, grad, sum,
                          of_moments || gradients.weight.values || norm.relu ? product : nullptr);

  const Scratch<double> parameter_sums(2 * layout.channels);
  double *const of_weight = parameter_sums.data(), *const of_bias = of_weight + layout.channels;
  if (gradients.weight.values || gradients.bias.values) {
    std::fill_n(of_weight, 2 * layout.channels, 0.0);
    terms.for_each([&](std::int64_t i, std::int64_t c, std::int64_t group) {
      of_bias[c] += sum[i];
      if (gradients.weight.values) of_weight[c] += terms.inverse(group) * product[i];
    });
    store_gradient(gradients.weight, of_weight, layout.channels);
    store_gradient(gradients.bias, of_bias, layout.channels);
  }
  if (!gradients.x) return;
  if (fixed) return channel_gradient(norm.dtype, channels, map, {map.scale, nullptr, nullptr}, x, grad, gradients.x);

  // grad_x = scale grad - inverse (mean of weight grad) - inverse^3 (mean of weight grad (x - mean)) (x - mean)
  const Scratch<double> group_sums(2 * terms.groups()), slopes(2 * count);
  double *const total = group_sums.data(), *const total_product = total + terms.groups();
  std::fill_n(total, 2 * terms.groups(), 0.0);
  terms.for_each([&](std::int64_t i, std::int64_t c, std::int64_t group) {
    total[group] += terms.weight()[c] * sum[i];
    total_product[group] += terms.weight()[c] * product[i];
  });
  const double n = static_cast<double>(layout.rows * (layout.channels / std::max<std::int64_t>(layout.groups, 1)));
  terms.for_each([&](std::int64_t i, std::int64_t, std::int64_t group) {
    const double inverse = terms.inverse(group);
    slopes.data()[i] = -inverse * inverse * inverse * total_product[group] / n;
    slopes.data()[count + i] = -inverse * total[group] / n;
  });
  channel_gradient(norm.dtype, channels, map, {map.scale, slopes.data(), slopes.data() + count}, x, grad, gradients.x);
}

}  // namespace everyo::kernels
