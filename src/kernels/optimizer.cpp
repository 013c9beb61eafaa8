#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "everyo/half.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements a thread takes at a time

// Calls body(at, load, store) for whole vectors of float, then once for a partial one: the same code for both, so an
// element's bits do not depend on its place.
template <class Body>
HWY_INLINE void each_vector(std::size_t n, Body&& body) {
  const std::size_t lanes = hn::Lanes(WideTag<float>());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    body(
        i, [](const auto* p) HWY_ATTR { return load(p); }, [](auto v, auto* p) HWY_ATTR { store(v, p); });
  if (i < n)
    body(
        i, [n, i](const auto* p) HWY_ATTR { return load_part(p, n - i); },
        [n, i](auto v, auto* p) HWY_ATTR { store_part(v, p, n - i); });
}

template <class T>
void sgd_vectors(const SgdTask& task, const SgdScalars& s, std::int64_t begin, std::int64_t end) {
  const WideTag<float> d;
  auto* weight = static_cast<T*>(task.weight) + begin;
  const auto* gradient = static_cast<const T*>(task.gradient) + begin;
  auto* velocity = task.velocity ? static_cast<float*>(task.velocity) + begin : nullptr;
  const auto lr = hn::Set(d, static_cast<float>(s.lr)), momentum = hn::Set(d, static_cast<float>(s.momentum)),
             decay = hn::Set(d, static_cast<float>(s.weight_decay));
  const bool decays = s.weight_decay != 0;
  each_vector(static_cast<std::size_t>(end - begin), [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR {
    const auto w = load_at(weight + i);
    auto g = load_at(gradient + i);
    if (decays) g = hn::MulAdd(decay, w, g);
    if (velocity) {
      const auto v = task.first ? g : hn::MulAdd(momentum, load_at(velocity + i), g);
      store_at(v, velocity + i);
      g = s.nesterov ? hn::MulAdd(momentum, v, g) : v;
    }
    store_at(hn::NegMulAdd(lr, g, w), weight + i);
  });
}

template <class T>
void adam_vectors(const AdamTask& task, const AdamScalars& s, std::int64_t begin, std::int64_t end) {
  const WideTag<float> d;
  auto* weight = static_cast<T*>(task.weight) + begin;
  const auto* gradient = static_cast<const T*>(task.gradient) + begin;
  auto *mean = static_cast<float*>(task.mean) + begin, *square = static_cast<float*>(task.square) + begin;
  auto* largest = task.largest ? static_cast<float*>(task.largest) + begin : nullptr;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
  const auto beta1 = set(s.beta1), beta2 = set(s.beta2), rest1 = set(1 - s.beta1), rest2 = set(1 - s.beta2),
             eps = set(s.eps), decay = set(s.weight_decay), decay_factor = set(s.decay_factor),
             step_size = set(task.step_size), square_factor = set(task.square_factor);
  const bool decays = s.weight_decay != 0, decoupled = s.decay_factor != 1;
  each_vector(static_cast<std::size_t>(end - begin), [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR {
    auto w = load_at(weight + i);
    auto g = load_at(gradient + i);
    if (decays) g = hn::MulAdd(decay, w, g);
    if (decoupled) w = hn::Mul(decay_factor, w);
    const auto m = hn::MulAdd(beta1, load_at(mean + i), hn::Mul(rest1, g));
    auto v = hn::MulAdd(beta2, load_at(square + i), hn::Mul(hn::Mul(rest2, g), g));
    store_at(m, mean + i);
    store_at(v, square + i);
    if (largest) {
      v = hn::IfThenElse(hn::Gt(load_at(largest + i), v), load_at(largest + i), v);
      store_at(v, largest + i);
    }
    const auto denominator = hn::MulAdd(hn::Sqrt(v), square_factor, eps);
    store_at(hn::NegMulAdd(step_size, hn::Div(m, denominator), w), weight + i);
  });
}

void sgd_float32(const SgdTask& task, const SgdScalars& s) {
  parallel_for(task.size, grain, [&](std::int64_t begin, std::int64_t end) {
    if (task.dtype == DType::float32)
      sgd_vectors<float>(task, s, begin, end);
    else if (task.dtype == DType::float16)
      sgd_vectors<Float16>(task, s, begin, end);
    else
      sgd_vectors<BFloat16>(task, s, begin, end);
  });
}
void adam_float32(const AdamTask& task, const AdamScalars& s) {
  parallel_for(task.size, grain, [&](std::int64_t begin, std::int64_t end) {
    if (task.dtype == DType::float32)
      adam_vectors<float>(task, s, begin, end);
    else if (task.dtype == DType::float16)
      adam_vectors<Float16>(task, s, begin, end);
    else
      adam_vectors<BFloat16>(task, s, begin, end);
  });
}

// ---- gradients as a whole: squares summed, scaled, clipped
constexpr std::size_t side_by_side = 32;  // sums; the same for every instruction set, so that their order is too

template <class T>
HWY_INLINE void add_squares(const T* x, hn::Vec<hn::ScalableTag<double>>* sums) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (sizeof(T) == 2) {
    HWY_ALIGN float wide[side_by_side];
    const WideTag<float> df;
    for (std::size_t i = 0; i < side_by_side; i += hn::Lanes(df)) hn::Store(load(x + i), df, wide + i);
    add_squares<float>(wide, sums);
  } else {
    for (std::size_t k = 0; k < side_by_side / lanes; ++k) {
      if constexpr (std::is_same_v<T, double>) {
        const auto v = hn::LoadU(d, x + k * lanes);
        sums[k] = hn::MulAdd(v, v, sums[k]);
      } else {
        const auto v = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, hn::ScalableTag<double>>(), x + k * lanes));
        sums[k] = hn::MulAdd(v, v, sums[k]);
      }
    }
  }
}

template <class T>
double squares_of(const T* x, std::size_t count) {
  const hn::ScalableTag<double> d;
  hn::Vec<hn::ScalableTag<double>> sums[side_by_side / hn::MaxLanes(d)];
  for (auto& each : sums) each = hn::Zero(d);
  std::size_t i = 0;
  for (; i + side_by_side <= count; i += side_by_side) add_squares(x + i, sums);
  if (i < count) {
    T rest[side_by_side] = {};
    std::copy(x + i, x + count, rest);
    add_squares(rest, sums);
  }
  HWY_ALIGN double each[side_by_side];
  for (std::size_t k = 0; k < side_by_side / hn::Lanes(d); ++k) hn::Store(sums[k], d, each + k * hn::Lanes(d));
  for (std::size_t half = side_by_side / 2; half != 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) each[k] += each[k + half];
  return each[0];
}

// sums[block] of the blocks of `grain` elements.
void squares_of_blocks(DType dtype, const void* values, std::int64_t size, double* sums) {
  parallel_for(size, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto in = [&]<class T>() {
      return squares_of(static_cast<const T*>(values) + begin, static_cast<std::size_t>(end - begin));
    };
    double& sum = sums[begin / grain];
    switch (dtype) {
      case DType::float64: sum = in.template operator()<double>(); break;
      case DType::float16: sum = in.template operator()<Float16>(); break;
      case DType::bfloat16: sum = in.template operator()<BFloat16>(); break;
      default: sum = in.template operator()<float>();
    }
  });
}

// x = f(x) of float32 or halves, f on vectors of float.
template <class F>
HWY_INLINE void change_in_place(DType dtype, void* values, std::int64_t size, F f) {
  parallel_for(size, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    const auto in = [&]<class T>() HWY_ATTR {
      T* const x = static_cast<T*>(values) + begin;
      each_vector(static_cast<std::size_t>(end - begin),
                  [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR { store_at(f(load_at(x + i)), x + i); });
    };
    if (dtype == DType::float16)
      in.template operator()<Float16>();
    else if (dtype == DType::bfloat16)
      in.template operator()<BFloat16>();
    else
      in.template operator()<float>();
  });
}
void scale_float32(DType dtype, void* values, std::int64_t size, float factor) {
  const auto by = hn::Set(WideTag<float>(), factor);
  change_in_place(dtype, values, size, [by](auto x) HWY_ATTR { return hn::Mul(x, by); });
}
void clip_float32(DType dtype, void* values, std::int64_t size, float limit) {
  const auto high = hn::Set(WideTag<float>(), limit), low = hn::Neg(high);
  change_in_place(dtype, values, size, [high, low](auto x) HWY_ATTR {
    return hn::IfThenElse(hn::Gt(x, high), high, hn::IfThenElse(hn::Lt(x, low), low, x));  // NaN stays
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(sgd_float32);
HWY_EXPORT(adam_float32);
HWY_EXPORT(squares_of_blocks);
HWY_EXPORT(scale_float32);
HWY_EXPORT(clip_float32);

constexpr std::int64_t grain = 1 << 15, block = 4096;  // fixed, so that threads do not show

// In float64: float64 weights, or float64 state.
template <class T, class S>
void sgd_wide(const SgdTask& task, const SgdScalars& s) {
  parallel_for(task.size, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T& weight = static_cast<T*>(task.weight)[i];
      const double w = static_cast<double>(widen(weight));
      double g = static_cast<double>(widen(static_cast<const T*>(task.gradient)[i])) + s.weight_decay * w;
      if (task.velocity) {
        S& velocity = static_cast<S*>(task.velocity)[i];
        const double v = task.first ? g : s.momentum * static_cast<double>(velocity) + g;
        velocity = static_cast<S>(v);
        g = s.nesterov ? g + s.momentum * v : v;
      }
      weight = narrow<T>(w - s.lr * g);
    }
  });
}

template <class T, class S>
void adam_wide(const AdamTask& task, const AdamScalars& s) {
  parallel_for(task.size, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T& weight = static_cast<T*>(task.weight)[i];
      double w = static_cast<double>(widen(weight));
      const double g = static_cast<double>(widen(static_cast<const T*>(task.gradient)[i])) + s.weight_decay * w;
      w *= s.decay_factor;
      S &mean = static_cast<S*>(task.mean)[i], &square = static_cast<S*>(task.square)[i];
      const double m = s.beta1 * static_cast<double>(mean) + (1 - s.beta1) * g;
      double v = s.beta2 * static_cast<double>(square) + (1 - s.beta2) * g * g;
      mean = static_cast<S>(m);
      square = static_cast<S>(v);
      if (task.largest) {
        S& largest = static_cast<S*>(task.largest)[i];
        if (static_cast<double>(largest) > v) v = static_cast<double>(largest);
        largest = static_cast<S>(v);
      }
      weight = narrow<T>(w - task.step_size * m / (std::sqrt(v) * task.square_factor + s.eps));
    }
  });
}

// Calls f.operator()<T, S>() for the floating element type and the state type.
template <class F>
void visit_floating(DType dtype, DType state, F&& f) {
  const auto with_state = [&]<class T>() {
    if (state == DType::float64)
      f.template operator()<T, double>();
    else
      f.template operator()<T, float>();
  };
  switch (dtype) {
    case DType::float64: return with_state.template operator()<double>();
    case DType::float16: return with_state.template operator()<Float16>();
    case DType::bfloat16: return with_state.template operator()<BFloat16>();
    default: return with_state.template operator()<float>();
  }
}

bool in_float32(DType dtype, DType state) { return dtype != DType::float64 && state == DType::float32; }

template <class F>
void each_floating(DType dtype, F&& f) {
  visit_floating(dtype, DType::float32, [&]<class T, class>() { f.template operator()<T>(); });
}

}  // namespace

void sgd(std::span<const SgdTask> tasks, const SgdScalars& s) {
  use_isa();
  for (const SgdTask& task : tasks) {
    if (in_float32(task.dtype, task.state_dtype))
      HWY_DYNAMIC_DISPATCH(sgd_float32)(task, s);
    else
      visit_floating(task.dtype, task.state_dtype, [&]<class T, class S>() { sgd_wide<T, S>(task, s); });
  }
}

void adam(std::span<const AdamTask> tasks, const AdamScalars& s) {
  use_isa();
  for (const AdamTask& task : tasks) {
    if (in_float32(task.dtype, task.state_dtype))
      HWY_DYNAMIC_DISPATCH(adam_float32)(task, s);
    else
      visit_floating(task.dtype, task.state_dtype, [&]<class T, class S>() { adam_wide<T, S>(task, s); });
  }
}

double sum_of_squares(DType dtype, const void* values, std::int64_t size) {
  use_isa();
  const std::int64_t blocks = (size + grain - 1) / grain;
  const Scratch<double> sums(blocks + 1);
  HWY_DYNAMIC_DISPATCH(squares_of_blocks)(dtype, values, size, sums.data());
  double total = 0;
  for (std::int64_t i = 0; i < blocks; ++i) total += sums.data()[i];
  return total;
}

void scale_in_place(DType dtype, void* values, std::int64_t size, double factor) {
  use_isa();
  if (dtype != DType::float64)
    return HWY_DYNAMIC_DISPATCH(scale_float32)(dtype, values, size, static_cast<float>(factor));
  auto* x = static_cast<double*>(values);
  for (std::int64_t i = 0; i < size; ++i) x[i] *= factor;
}

void clip_in_place(DType dtype, void* values, std::int64_t size, double limit) {
  use_isa();
  if (dtype != DType::float64)
    return HWY_DYNAMIC_DISPATCH(clip_float32)(dtype, values, size, static_cast<float>(limit));
  auto* x = static_cast<double*>(values);
  for (std::int64_t i = 0; i < size; ++i) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

std::int64_t first_nonfinite(DType dtype, const void* values, std::int64_t size) {
  std::int64_t found = -1;
  each_floating(dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(values);
    for (std::int64_t i = 0; i < size && found < 0; ++i)
      if (!std::isfinite(widen(x[i]))) found = i;
  });
  return found;
}

}  // namespace everyo::kernels
#endif
