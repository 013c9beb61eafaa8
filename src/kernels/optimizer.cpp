#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "everyo/half.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"

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

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(sgd_float32);
HWY_EXPORT(adam_float32);

constexpr std::int64_t block = 4096;  // of a reduction: fixed, so that threads do not show

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
  double total = 0;
  each_floating(dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(values);
    for (std::int64_t begin = 0; begin < size; begin += block) {
      constexpr std::int64_t lanes = 8;
      double sums[lanes] = {};
      const std::int64_t end = std::min(size, begin + block);
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = static_cast<double>(widen(x[i]));
        sums[i % lanes] += value * value;
      }
      total += ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    }
  });
  return total;
}

void scale_in_place(DType dtype, void* values, std::int64_t size, double factor) {
  each_floating(dtype, [&]<class T>() {
    auto* x = static_cast<T*>(values);
    using Compute = decltype(widen(T{}));
    const auto by = static_cast<Compute>(factor);
    for (std::int64_t i = 0; i < size; ++i) x[i] = narrow<T>(static_cast<Compute>(widen(x[i]) * by));
  });
}

void clip_in_place(DType dtype, void* values, std::int64_t size, double limit) {
  each_floating(dtype, [&]<class T>() {
    auto* x = static_cast<T*>(values);
    using Compute = decltype(widen(T{}));
    const auto high = static_cast<Compute>(limit);
    for (std::int64_t i = 0; i < size; ++i) {
      const Compute value = widen(x[i]);
      x[i] = narrow<T>(value > high ? high : value < -high ? -high : value);
    }
  });
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
