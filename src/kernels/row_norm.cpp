#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_norm.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "everyo/half.h"
#include "kernels/convert.h"
#include "kernels/isa.h"
#include "kernels/norm-inl.h"
#include "kernels/parallel.h"
#include "kernels/row_norm.h"
#include "kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// Sums of a row: so many accumulators, of so many terms each.
constexpr std::int64_t accumulators = 4, block_steps = 16;

// Two sums over a row of what `terms` gives for each vector, {first, second}: in float32 several accumulators of few
// terms each are added to a total, so that long rows keep their digits.
struct RowSums {
  double first, second;
};
template <class T, class Terms>
HWY_INLINE RowSums sum_row(std::int64_t width, const Terms& terms) {
  const WideTag<T> d;
  constexpr std::int64_t lanes = lanes_of<T>;
  WideVec<T> total = hn::Zero(d), total_2 = hn::Zero(d);
  std::int64_t j = 0;
  while (j + lanes <= width) {
    WideVec<T> a[accumulators], b[accumulators];
    for (std::int64_t k = 0; k < accumulators; ++k) a[k] = b[k] = hn::Zero(d);
    for (std::int64_t step = 0; step < block_steps && j + accumulators * lanes <= width; ++step)
      for (std::int64_t k = 0; k < accumulators; ++k, j += lanes) terms(j, Whole(), a[k], b[k]);
    if (j + accumulators * lanes > width)
      for (; j + lanes <= width; j += lanes) terms(j, Whole(), a[0], b[0]);
    total = hn::Add(total, hn::Add(hn::Add(a[0], a[1]), hn::Add(a[2], a[3])));
    total_2 = hn::Add(total_2, hn::Add(hn::Add(b[0], b[1]), hn::Add(b[2], b[3])));
  }
  if (j < width) terms(j, width - j, total, total_2);
  HWY_ALIGN Wide<T> values[lanes];
  RowSums sums{0, 0};
  hn::Store(total, d, values);
  for (const Wide<T> v : values) sums.first += static_cast<double>(v);
  hn::Store(total_2, d, values);
  for (const Wide<T> v : values) sums.second += static_cast<double>(v);
  return sums;
}

template <class T, class Count>
HWY_INLINE WideVec<T> only(WideVec<T> v, Count count) {  // 0 in the lanes behind a part
  if constexpr (std::is_same_v<Count, Whole>)
    return v;
  else
    return hn::IfThenElseZero(hn::FirstN(WideTag<T>(), static_cast<std::size_t>(count)), v);
}

/// x -> (x - center) inverse + rest, which is 0 on average and of variance 1.
template <class T>
struct Standard {
  WideVec<T> center, inverse, rest;
  HWY_INLINE WideVec<T> operator()(WideVec<T> x) const { return hn::MulAdd(hn::Sub(x, center), inverse, rest); }
};

struct RowMoments {
  double mean, inverse;
};
template <class T>
HWY_INLINE RowMoments moments_of(const T* x, std::int64_t width, double eps) {
  const WideTag<T> d;
  const RowSums estimate = sum_row<T>(width, [=](std::int64_t j, auto count, WideVec<T>& sum, WideVec<T>&)
                                                 HWY_ATTR { sum = hn::Add(sum, load_lanes(x + j, count)); });
  const auto n = static_cast<double>(width);
  const auto about = static_cast<Wide<T>>(estimate.first / n);
  const WideVec<T> center = hn::Set(d, about);
  const RowSums sums = sum_row<T>(width, [=](std::int64_t j, auto count, WideVec<T>& sum, WideVec<T>& square) HWY_ATTR {
    const auto difference = only<T>(hn::Sub(load_lanes(x + j, count), center), count);
    sum = hn::Add(sum, difference);
    square = hn::MulAdd(difference, difference, square);
  });
  const double rest = sums.first / n, variance = sums.second / n - rest * rest;
  return {static_cast<double>(about) + rest, 1 / std::sqrt((variance < 0 ? 0 : variance) + eps)};
}

template <class T>
HWY_INLINE Standard<T> standard_of(const RowMoments& m) {
  const WideTag<T> d;
  const auto center = static_cast<Wide<T>>(m.mean);
  const double rest = (static_cast<double>(center) - m.mean) * m.inverse;
  return {hn::Set(d, center), hn::Set(d, static_cast<Wide<T>>(m.inverse)), hn::Set(d, static_cast<Wide<T>>(rest))};
}

// f(first column, Whole or number of columns) over a row.
template <class T, class F>
HWY_INLINE void for_each_vector(std::int64_t width, F&& f) {
  std::int64_t j = 0;
  for (; j + lanes_of<T> <= width; j += lanes_of<T>) f(j, Whole());
  if (j < width) f(j, width - j);
}

template <class T, bool relu>
void forward_rows(const RowNorm& norm, const Wide<T>* weight, const Wide<T>* bias, const T* x, T* y,
                  std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r, x += norm.width, y += norm.width) {
    const Standard<T> standard = standard_of<T>(moments_of(x, norm.width, norm.eps));
    for_each_vector<T>(norm.width, [=](std::int64_t j, auto count) HWY_ATTR {
      auto value =
          hn::MulAdd(standard(load_lanes(x + j, count)), load_lanes(weight + j, count), load_lanes(bias + j, count));
      if constexpr (relu) value = cut<T>(value);
      store_lanes(value, y + j, count);
    });
  }
}

// Where a block's sums for weight and bias go; null for those not wanted.
template <class W>
struct ParameterSums {
  W *weight, *bias;
};

/// Gradient before the ReLU. A lambda called from lambdas in its place takes three times as long.
template <class T, bool relu>
struct RowGradient {
  const T* grad;
  const Wide<T>*weight, *bias;
  template <class Count>
  HWY_INLINE WideVec<T> gradient(std::int64_t j, Count count, WideVec<T> value) const {
    const auto g = load_lanes(grad + j, count);
    if constexpr (!relu) return g;
    return uncut<T>(g, hn::MulAdd(value, load_lanes(weight + j, count), load_lanes(bias + j, count)));
  }
};

template <class T, bool relu>
void backward_rows(const RowNorm& norm, const Wide<T>* weight, const Wide<T>* bias, const T* x, const T* grad,
                   T* grad_x, const ParameterSums<Wide<T>>& sums, std::int64_t rows) {
  const WideTag<T> d;
  const auto n = static_cast<double>(norm.width);
  for (std::int64_t r = 0; r < rows; ++r, x += norm.width, grad += norm.width) {
    const RowMoments moments = moments_of(x, norm.width, norm.eps);
    const Standard<T> standard = standard_of<T>(moments);
    const RowGradient<T, relu> row{grad, weight, bias};
    if (sums.weight || sums.bias) {
      for_each_vector<T>(norm.width, [=](std::int64_t j, auto count) HWY_ATTR {
        const auto value = standard(load_lanes(x + j, count));
        const auto g = row.gradient(j, count, value);
        if (sums.weight) store_lanes(hn::MulAdd(g, value, load_lanes(sums.weight + j, count)), sums.weight + j, count);
        if (sums.bias) store_lanes(hn::Add(g, load_lanes(sums.bias + j, count)), sums.bias + j, count);
      });
    }
    if (!grad_x) continue;
    const RowSums s =
        sum_row<T>(norm.width, [=](std::int64_t j, auto count, WideVec<T>& sum, WideVec<T>& product) HWY_ATTR {
          const auto value = standard(load_lanes(x + j, count));
          const auto g = hn::Mul(row.gradient(j, count, value), load_lanes(weight + j, count));
          sum = hn::Add(sum, g);
          product = hn::MulAdd(g, value, product);
        });
    const auto inverse = hn::Set(d, static_cast<Wide<T>>(moments.inverse)),
               offset = hn::Set(d, static_cast<Wide<T>>(-moments.inverse * s.first / n)),
               slope = hn::Set(d, static_cast<Wide<T>>(-moments.inverse * s.second / n));
    for_each_vector<T>(norm.width, [=](std::int64_t j, auto count) HWY_ATTR {
      const auto value = standard(load_lanes(x + j, count));
      const auto g = hn::Mul(row.gradient(j, count, value), load_lanes(weight + j, count));
      store_lanes(hn::MulAdd(g, inverse, hn::MulAdd(value, slope, offset)), grad_x + j, count);
    });
    grad_x += norm.width;
  }
}

// The same for bias alone, without x.
template <class T>
void bias_rows(std::int64_t width, const T* grad, Wide<T>* bias, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r, grad += width)
    for_each_vector<T>(width, [=](std::int64_t j, auto count) HWY_ATTR {
      store_lanes(hn::Add(load_lanes(grad + j, count), load_lanes(bias + j, count)), bias + j, count);
    });
}

void RowNormForward(const RowNorm& norm, const void* weight, const void* bias, const void* x, void* y,
                    std::int64_t first, std::int64_t rows) {
  with_type(norm.dtype, [&]<class T>() {
    const auto run = norm.relu ? forward_rows<T, true> : forward_rows<T, false>;
    const std::int64_t at = first * norm.width;
    run(norm, static_cast<const Wide<T>*>(weight), static_cast<const Wide<T>*>(bias), static_cast<const T*>(x) + at,
        static_cast<T*>(y) + at, rows);
  });
}

void RowNormBackward(const RowNorm& norm, const void* weight, const void* bias, const void* x, const void* grad,
                     void* grad_x, void* weight_sums, void* bias_sums, std::int64_t first, std::int64_t rows) {
  with_type(norm.dtype, [&]<class T>() {
    using W = Wide<T>;
    const std::int64_t at = first * norm.width;
    if (!x) return bias_rows<T>(norm.width, static_cast<const T*>(grad) + at, static_cast<W*>(bias_sums), rows);
    const auto run = norm.relu ? backward_rows<T, true> : backward_rows<T, false>;
    run(norm, static_cast<const W*>(weight), static_cast<const W*>(bias), static_cast<const T*>(x) + at,
        static_cast<const T*>(grad) + at, grad_x ? static_cast<T*>(grad_x) + at : nullptr,
        {static_cast<W*>(weight_sums), static_cast<W*>(bias_sums)}, rows);
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(RowNormForward);
HWY_EXPORT(RowNormBackward);

constexpr std::int64_t block_elements = 16384;      // the least work worth a block of its own
constexpr std::int64_t sum_block_elements = 32768;  // the same where each block has sums for weight and bias
constexpr std::int64_t least_sum_rows = 8, most_sum_blocks = 64;  // bound the memory of those sums
constexpr std::int64_t stretch_rows = 32;  // summed in the type x is computed in, before the sum goes to float64

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// Weight and bias in the type x is computed in.
template <class W>
class RowParameters {
 public:
  explicit RowParameters(const RowNorm& norm) : width_(norm.width), values_(2 * norm.width) {
    widen(norm.parameters.weight, values_.data(), 1);
    widen(norm.parameters.bias, values_.data() + width_, 0);
  }
  [[nodiscard]] const W* weight() const { return values_.data(); }
  [[nodiscard]] const W* bias() const { return values_.data() + width_; }

 private:
  void widen(const NormParameter& from, W* to, W missing) const {
    if (from.values)
      convert(from.dtype, from.values, dtype_v<W>, to, width_);
    else
      std::fill_n(to, width_, missing);
  }
  std::int64_t width_;
  Scratch<W> values_;
};

// A block's sums: a stretch's in W, which are then added to those in float64.
template <class W>
class StretchSums {
 public:
  StretchSums(std::int64_t width, bool weight, bool bias, double* totals)
      : width_(width), weight_(weight), bias_(bias), totals_(totals), values_(2 * width) {
    std::fill_n(totals_, 2 * width, 0.0);
    std::fill_n(values_.data(), 2 * width, W{0});
  }
  [[nodiscard]] W* weight() const { return weight_ ? values_.data() : nullptr; }
  [[nodiscard]] W* bias() const { return bias_ ? values_.data() + width_ : nullptr; }
  void end_stretch() const {
    for (std::int64_t j = 0; j < 2 * width_; ++j) totals_[j] += static_cast<double>(values_.data()[j]);
    std::fill_n(values_.data(), 2 * width_, W{0});
  }

 private:
  std::int64_t width_;
  bool weight_, bias_;
  double* totals_;
  Scratch<W> values_;
};

template <class W>
void forward(const RowNorm& norm, const void* x, void* y) {
  const RowParameters<W> parameters(norm);
  parallel_for(norm.rows, std::max<std::int64_t>(1, block_elements / norm.width),
               [&](std::int64_t r, std::int64_t end) {
                 HWY_DYNAMIC_DISPATCH(RowNormForward)(norm, parameters.weight(), parameters.bias(), x, y, r, end - r);
               });
}

template <class W>
void backward(const RowNorm& norm, const void* x, const void* grad, const NormGradients& gradients) {
  const RowParameters<W> parameters(norm);
  const std::int64_t width = norm.width;
  const bool of_weight = gradients.weight.values != nullptr, of_bias = gradients.bias.values != nullptr;
  const std::int64_t block =
      std::max({least_sum_rows, sum_block_elements / width, ceil_div(norm.rows, most_sum_blocks)});
  const std::int64_t blocks = ceil_div(norm.rows, block);
  const Scratch<double> totals(of_weight || of_bias ? std::max<std::int64_t>(1, blocks) * 2 * width : 1);
  parallel_for(norm.rows, block, [&](std::int64_t begin, std::int64_t end) {
    if (!of_weight && !of_bias)
      return HWY_DYNAMIC_DISPATCH(RowNormBackward)(norm, parameters.weight(), parameters.bias(), x, grad, gradients.x,
                                                   nullptr, nullptr, begin, end - begin);
    const StretchSums<W> sums(width, of_weight, of_bias, totals.data() + begin / block * 2 * width);
    for (std::int64_t r = begin; r < end; r += stretch_rows) {
      HWY_DYNAMIC_DISPATCH(RowNormBackward)
      (norm, parameters.weight(), parameters.bias(), x, grad, gradients.x, sums.weight(), sums.bias(), r,
       std::min(stretch_rows, end - r));
      sums.end_stretch();
    }
  });
  if (!of_weight && !of_bias) return;
  if (blocks == 0) std::fill_n(totals.data(), 2 * width, 0.0);
  for (std::int64_t b = 1; b < blocks; ++b)
    for (std::int64_t j = 0; j < 2 * width; ++j) totals.data()[j] += totals.data()[b * 2 * width + j];
  if (of_weight) convert(float64, totals.data(), gradients.weight.dtype, gradients.weight.values, width);
  if (of_bias) convert(float64, totals.data() + width, gradients.bias.dtype, gradients.bias.values, width);
}

}  // namespace

void row_norm(const RowNorm& norm, const void* x, void* y) {
  use_isa();
  norm.dtype == float64 ? forward<double>(norm, x, y) : forward<float>(norm, x, y);
}

void row_norm_backward(const RowNorm& norm, const void* x, const void* grad, const NormGradients& gradients) {
  use_isa();
  if (norm.dtype == float64)
    backward<double>(norm, x, grad, gradients);
  else
    backward<float>(norm, x, grad, gradients);
}

}  // namespace everyo::kernels
#endif
