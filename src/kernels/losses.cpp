#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/losses.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "everyo/half.h"
#include "kernels/convert.h"
#include "kernels/fold.h"
#include "kernels/isa.h"
#include "kernels/losses.h"
#include "kernels/parallel.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

/// log(1 + e) for 0 <= e <= 1, exact to a few ulp where e is tiny too: what 1 + e rounds away is added back.
HWY_INLINE VF log_one_plus(VF e) {
  const VF one = constant(1.0f), u = hn::Add(one, e);
  return hn::Add(log(u), hn::Div(hn::Sub(e, hn::Sub(u, one)), u));
}

HWY_INLINE VF clipped(VF p) { return clamp(p, constant(1e-7f), constant(1.0f - 1e-7f)); }

template <PairLoss loss>
HWY_INLINE VF value(VF x, VF t) {
  const VF zero = hn::Zero(F32()), one = constant(1.0f), difference = hn::Sub(x, t);
  if constexpr (loss == PairLoss::squared)
    return hn::Mul(difference, difference);
  else if constexpr (loss == PairLoss::absolute)
    return hn::Abs(difference);
  else if constexpr (loss == PairLoss::logistic) {
    const VF positive = hn::IfThenElse(hn::Lt(x, zero), zero, x);
    return hn::Add(hn::NegMulAdd(x, t, positive), log_one_plus(exp(hn::Neg(hn::Abs(x)))));
  } else {
    const VF p = clipped(x);
    return hn::Neg(hn::MulAdd(t, log(p), hn::Mul(hn::Sub(one, t), log(hn::Sub(one, p)))));
  }
}

struct Slopes {
  VF x, target;
};
template <PairLoss loss>
HWY_INLINE Slopes slopes(VF x, VF t) {
  const VF zero = hn::Zero(F32()), one = constant(1.0f), difference = hn::Sub(x, t);
  if constexpr (loss == PairLoss::squared) {
    const VF twice = hn::Add(difference, difference);
    return {twice, hn::Neg(twice)};
  } else if constexpr (loss == PairLoss::absolute) {
    const VF sign = hn::IfThenElse(hn::Eq(difference, zero), zero, hn::CopySign(one, difference));
    const VF slope = hn::IfThenElse(hn::IsNaN(difference), difference, sign);
    return {slope, hn::Neg(slope)};
  } else if constexpr (loss == PairLoss::logistic) {
    return {hn::Sub(sigmoid(x), t), hn::Neg(x)};
  } else {
    const VF p = clipped(x), rest = hn::Sub(one, p);
    const VF slope = hn::Div(hn::Sub(p, t), hn::Mul(p, rest));
    return {hn::IfThenElseZero(hn::Or(hn::Eq(p, x), hn::IsNaN(x)), slope), hn::Sub(log(rest), log(p))};
  }
}

template <PairLoss loss, class T>
void values_of(const LossPair& pair, std::int64_t begin, std::int64_t end, float* out) {
  const T *x = static_cast<const T*>(pair.x), *t = static_cast<const T*>(pair.target);
  for (std::int64_t i = begin; i < end; i += float_lanes) {
    const std::int64_t lanes = std::min(float_lanes, end - i);
    store_lanes(value<loss>(load_lanes(x + i, lanes), load_lanes(t + i, lanes)), out + (i - begin), lanes);
  }
}

template <PairLoss loss, class T>
void gradients_of(const LossPair& pair, const LossGradient& gradient, std::int64_t begin, std::int64_t end) {
  const T *x = static_cast<const T*>(pair.x), *t = static_cast<const T*>(pair.target);
  const T* each = static_cast<const T*>(gradient.each);
  const VF scale = constant(static_cast<float>(gradient.scale));
  for (std::int64_t i = begin; i < end; i += float_lanes) {
    const std::int64_t lanes = std::min(float_lanes, end - i);
    const VF factor = each == nullptr ? scale : hn::Mul(scale, load_lanes(each + i, lanes));
    const Slopes slope = slopes<loss>(load_lanes(x + i, lanes), load_lanes(t + i, lanes));
    if (gradient.grad_x != nullptr) store_lanes(hn::Mul(slope.x, factor), static_cast<T*>(gradient.grad_x) + i, lanes);
    if (gradient.grad_target != nullptr)
      store_lanes(hn::Mul(slope.target, factor), static_cast<T*>(gradient.grad_target) + i, lanes);
  }
}

template <class T>
void values_typed(PairLoss loss, const LossPair& pair, std::int64_t begin, std::int64_t end, float* out) {
  switch (loss) {
    case PairLoss::squared: return values_of<PairLoss::squared, T>(pair, begin, end, out);
    case PairLoss::absolute: return values_of<PairLoss::absolute, T>(pair, begin, end, out);
    case PairLoss::logistic: return values_of<PairLoss::logistic, T>(pair, begin, end, out);
    case PairLoss::binary_probability: return values_of<PairLoss::binary_probability, T>(pair, begin, end, out);
  }
}
template <class T>
void gradients_typed(PairLoss loss, const LossPair& pair, const LossGradient& g, std::int64_t begin, std::int64_t end) {
  switch (loss) {
    case PairLoss::squared: return gradients_of<PairLoss::squared, T>(pair, g, begin, end);
    case PairLoss::absolute: return gradients_of<PairLoss::absolute, T>(pair, g, begin, end);
    case PairLoss::logistic: return gradients_of<PairLoss::logistic, T>(pair, g, begin, end);
    case PairLoss::binary_probability: return gradients_of<PairLoss::binary_probability, T>(pair, g, begin, end);
  }
}

void LossValues(PairLoss loss, const LossPair& pair, std::int64_t begin, std::int64_t end, float* out) {
  if (pair.dtype == float16)
    values_typed<Float16>(loss, pair, begin, end, out);
  else if (pair.dtype == bfloat16)
    values_typed<BFloat16>(loss, pair, begin, end, out);
  else
    values_typed<float>(loss, pair, begin, end, out);
}
void LossGradients(PairLoss loss, const LossPair& pair, const LossGradient& g, std::int64_t begin, std::int64_t end) {
  if (pair.dtype == float16)
    gradients_typed<Float16>(loss, pair, g, begin, end);
  else if (pair.dtype == bfloat16)
    gradients_typed<BFloat16>(loss, pair, g, begin, end);
  else
    gradients_typed<float>(loss, pair, g, begin, end);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(LossValues);
HWY_EXPORT(LossGradients);

constexpr std::int64_t chunk = 1024;  // values that wait in a buffer to be summed or rounded
constexpr std::int64_t block_elements = 16384;
constexpr std::int64_t most_parts = 64;

double clipped(double p) { return p < 1e-7 ? 1e-7 : p > 1 - 1e-7 ? 1 - 1e-7 : p; }

double value_of(PairLoss loss, double x, double t) {
  switch (loss) {
    case PairLoss::absolute: return std::abs(x - t);
    case PairLoss::logistic: return (x > 0 ? x : 0) - x * t + std::log1p(std::exp(-std::abs(x)));
    case PairLoss::binary_probability: return -(t * std::log(clipped(x)) + (1 - t) * std::log1p(-clipped(x)));
    case PairLoss::squared: break;
  }
  return (x - t) * (x - t);
}

struct DoubleSlopes {
  double x, target;
};
DoubleSlopes slopes_of(PairLoss loss, double x, double t) {
  switch (loss) {
    case PairLoss::absolute: {
      const double slope = x > t ? 1 : x < t ? -1 : x - t;  // the last: 0 or NaN
      return {slope, -slope};
    }
    case PairLoss::logistic: {
      const double e = std::exp(-std::abs(x));
      return {(x < 0 ? e : 1) / (1 + e) - t, -x};
    }
    case PairLoss::binary_probability: {
      const double p = clipped(x);
      return {p == x || x != x ? (p - t) / (p * (1 - p)) : 0, std::log1p(-p) - std::log(p)};
    }
    case PairLoss::squared: break;
  }
  return {2 * (x - t), 2 * (t - x)};
}

// The losses of one chunk, as what they are summed in.
void chunk_values(PairLoss loss, const LossPair& pair, std::int64_t begin, std::int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(LossValues)(loss, pair, begin, end, out);
}
void chunk_values(PairLoss loss, const LossPair& pair, std::int64_t begin, std::int64_t end, double* out) {
  const double *x = static_cast<const double*>(pair.x), *t = static_cast<const double*>(pair.target);
  for (std::int64_t i = begin; i < end; ++i) out[i - begin] = value_of(loss, x[i], t[i]);
}

// Elements of a block: fixed by the problem, whole chunks, at most most_parts blocks.
std::int64_t part_of(std::int64_t count) {
  const std::int64_t least = std::max(block_elements, (count + most_parts - 1) / most_parts);
  return (least + chunk - 1) / chunk * chunk;
}

template <class Wide>
double sum_values(PairLoss loss, const LossPair& pair) {
  double partial[most_parts] = {};
  const std::int64_t part = part_of(pair.count);
  parallel_for(pair.count, part, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t i = begin; i < end; i += chunk) {
      Wide values[chunk];
      const std::int64_t count = std::min(chunk, end - i);
      chunk_values(loss, pair, i, i + count, values);
      fold_rows(Fold::sum, dtype_v<Wide>, values, 1, 0, count, &sum);
    }
    partial[begin / part] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace

double loss_sum(PairLoss loss, const LossPair& pair) {
  use_isa();
  return pair.dtype == float64 ? sum_values<double>(loss, pair) : sum_values<float>(loss, pair);
}

void loss_values(PairLoss loss, const LossPair& pair, void* out) {
  use_isa();
  parallel_for(pair.count, block_elements, [&](std::int64_t begin, std::int64_t end) {
    if (pair.dtype == float64) return chunk_values(loss, pair, begin, end, static_cast<double*>(out) + begin);
    if (pair.dtype == float32) return chunk_values(loss, pair, begin, end, static_cast<float*>(out) + begin);
    for (std::int64_t i = begin; i < end; i += chunk) {
      float values[chunk];
      const std::int64_t count = std::min(chunk, end - i);
      chunk_values(loss, pair, i, i + count, values);
      convert(float32, values, pair.dtype, static_cast<std::uint16_t*>(out) + i, count);
    }
  });
}

void loss_backward(PairLoss loss, const LossPair& pair, const LossGradient& gradient) {
  use_isa();
  parallel_for(pair.count, block_elements, [&](std::int64_t begin, std::int64_t end) {
    if (pair.dtype != float64) return HWY_DYNAMIC_DISPATCH(LossGradients)(loss, pair, gradient, begin, end);
    const double *x = static_cast<const double*>(pair.x), *t = static_cast<const double*>(pair.target);
    const double* each = static_cast<const double*>(gradient.each);
    for (std::int64_t i = begin; i < end; ++i) {
      const DoubleSlopes slope = slopes_of(loss, x[i], t[i]);
      const double factor = each == nullptr ? gradient.scale : gradient.scale * each[i];
      if (gradient.grad_x != nullptr) static_cast<double*>(gradient.grad_x)[i] = slope.x * factor;
      if (gradient.grad_target != nullptr) static_cast<double*>(gradient.grad_target)[i] = slope.target * factor;
    }
  });
}

std::int64_t find_bad_probability(DType dtype, const void* x, std::int64_t count) {
  return visit_dtype(dtype, [&]<class T>() -> std::int64_t {
    const T* p = static_cast<const T*>(x);
    for (std::int64_t i = 0; i < count; ++i)
      if (static_cast<double>(widen(p[i])) < 0 || static_cast<double>(widen(p[i])) > 1) return i;
    return -1;
  });
}

}  // namespace everyo::kernels
#endif
