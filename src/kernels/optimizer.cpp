#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "everyo/half.h"
#include "kernels/isa.h"
#include "kernels/stalls.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/each_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements a thread takes at a time

// Weights of type T, from `begin` on, as vectors of float.
template <class T>
class Weights {
 public:
  Weights(const WeightTask& task, std::int64_t begin, Stalls* stalls)
      : weight_(static_cast<T*>(task.weight) + begin),
        master_(task.master ? task.master + begin : nullptr),
        stalls_(stalls) {}

  // A weight as fine as it is known.
  template <class Load>
  HWY_INLINE WideVec<float> get(std::size_t i, Load load_at) const {
    const auto w = load_at(weight_ + i);
    if constexpr (is_half(dtype_v<T>)) {
      if (master_ == nullptr) return w;
      const auto fine = load_at(master_ + i);
      return hn::IfThenElse(hn::Eq(round_to<T>(fine), w), fine, w);
    }
    return w;
  }

  // What get() gave becomes `value`.
  template <class Load, class Store>
  HWY_INLINE void set(WideVec<float> old, WideVec<float> value, std::size_t i, Load load_at, Store store_at) const {
    store_at(value, weight_ + i);
    if constexpr (is_half(dtype_v<T>)) {
      if (master_ != nullptr)
        store_at(value, master_ + i);
      else if (stalls_ != nullptr)
        count(old, value, load_at(weight_ + i), *stalls_);
    }
  }

 private:
  static HWY_NOINLINE void count(WideVec<float> old, WideVec<float> value, WideVec<float> rounded, Stalls& stalls) {
    const WideTag<float> d;
    const auto moved = hn::Ne(value, old), stalled = hn::And(moved, hn::Eq(rounded, old));
    const auto largest = [d, stalled](auto v) HWY_ATTR {
      return hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElseZero(stalled, hn::Abs(v))));
    };
    stalls.add({static_cast<std::int64_t>(hn::CountTrue(d, moved)),
                static_cast<std::int64_t>(hn::CountTrue(d, stalled)), largest(old), largest(hn::Sub(value, old))});
  }

  T* weight_;
  float* master_;
  Stalls* stalls_;
};

// A moment that only decays would never leave the subnormal numbers (their smallest times 0.9 rounds to itself), and
// processors compute those at a fraction of their speed: below float32's normal range it is 0.
HWY_INLINE WideVec<float> without_subnormals(WideVec<float> v) {
  const WideTag<float> d;
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(v), hn::Set(d, std::numeric_limits<float>::min())), v);
}

template <class T, class S>
HWY_NOINLINE void sgd_vectors(const SgdTask& task, const SgdScalars& s, std::int64_t begin, std::int64_t end,
                              Stalls* stalls) {
  const WideTag<float> d;
  const Weights<T> weights(task.weights, begin, stalls);
  const auto* gradient = static_cast<const T*>(task.gradient) + begin;
  auto* velocity = task.velocity ? static_cast<S*>(task.velocity) + begin : nullptr;
  const auto lr = hn::Set(d, static_cast<float>(s.lr)), momentum = hn::Set(d, static_cast<float>(s.momentum)),
             decay = hn::Set(d, static_cast<float>(s.weight_decay));
  const bool decays = s.weight_decay != 0;
  each_vector(static_cast<std::size_t>(end - begin), [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR {
    const auto w = weights.get(i, load_at);
    auto g = load_at(gradient + i);
    if (decays) g = hn::MulAdd(decay, w, g);
    if (velocity) {
      const auto v = without_subnormals(task.first ? g : hn::MulAdd(momentum, load_at(velocity + i), g));
      store_at(v, velocity + i);
      g = s.nesterov ? hn::MulAdd(momentum, v, g) : v;
    }
    weights.set(w, hn::NegMulAdd(lr, g, w), i, load_at, store_at);
  });
}

template <class T, class S>
HWY_NOINLINE void adam_vectors(const AdamTask& task, const AdamScalars& s, std::int64_t begin, std::int64_t end,
                               Stalls* stalls) {
  const WideTag<float> d;
  const Weights<T> weights(task.weights, begin, stalls);
  const auto* gradient = static_cast<const T*>(task.gradient) + begin;
  auto *mean = static_cast<S*>(task.mean) + begin, *square = static_cast<S*>(task.square) + begin;
  auto* largest = task.largest ? static_cast<S*>(task.largest) + begin : nullptr;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
  const auto beta1 = set(s.beta1), beta2 = set(s.beta2), rest1 = set(1 - s.beta1), rest2 = set(1 - s.beta2),
             eps = set(s.eps), decay = set(s.weight_decay), decay_factor = set(s.decay_factor),
             step_size = set(task.step_size), square_factor = set(task.square_factor);
  const bool decays = s.weight_decay != 0, decoupled = s.decay_factor != 1;
  each_vector(static_cast<std::size_t>(end - begin), [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR {
    const auto old = weights.get(i, load_at);
    auto w = old, g = load_at(gradient + i);
    if (decays) g = hn::MulAdd(decay, w, g);
    if (decoupled) w = hn::Mul(decay_factor, w);
    const auto m = without_subnormals(hn::MulAdd(beta1, load_at(mean + i), hn::Mul(rest1, g)));
    auto v = without_subnormals(hn::MulAdd(beta2, load_at(square + i), hn::Mul(hn::Mul(rest2, g), g)));
    store_at(m, mean + i);
    store_at(v, square + i);
    if (largest) {
      v = hn::IfThenElse(hn::Gt(load_at(largest + i), v), load_at(largest + i), v);
      store_at(v, largest + i);
    }
    const auto denominator = hn::MulAdd(hn::Sqrt(v), square_factor, eps);
    weights.set(old, hn::NegMulAdd(step_size, hn::Div(m, denominator), w), i, load_at, store_at);
  });
}

// f.operator()<T, S>() for weights and state that are computed in float32.
template <class F>
void visit_narrow(DType dtype, DType state, F&& f) {
  const auto with_state = [&]<class T>() {
    if (state == DType::bfloat16)
      f.template operator()<T, BFloat16>();
    else
      f.template operator()<T, float>();
  };
  if (dtype == DType::float16)
    with_state.template operator()<Float16>();
  else if (dtype == DType::bfloat16)
    with_state.template operator()<BFloat16>();
  else
    with_state.template operator()<float>();
}

void sgd_float32(const SgdTask& task, const SgdScalars& s) {
  for_each_block(task.weights, grain, [&](std::int64_t begin, std::int64_t end, Stalls* stalls) {
    visit_narrow(task.weights.dtype, task.state_dtype,
                 [&]<class T, class S>() { sgd_vectors<T, S>(task, s, begin, end, stalls); });
  });
}
void adam_float32(const AdamTask& task, const AdamScalars& s) {
  for_each_block(task.weights, grain, [&](std::int64_t begin, std::int64_t end, Stalls* stalls) {
    visit_narrow(task.weights.dtype, task.state_dtype,
                 [&]<class T, class S>() { adam_vectors<T, S>(task, s, begin, end, stalls); });
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

constexpr std::int64_t block = 4096;  // fixed, so that threads do not show

// A weight in float64: float64 weights, or float64 state.
template <class T>
double get_wide(const WeightTask& task, std::int64_t i) {
  const auto w = widen(static_cast<const T*>(task.weight)[i]);
  if (task.master != nullptr && widen(narrow<T>(task.master[i])) == w) return static_cast<double>(task.master[i]);
  return static_cast<double>(w);
}
template <class T>
void set_wide(const WeightTask& task, std::int64_t i, double old, double value, Stalls* stalls) {
  T& weight = static_cast<T*>(task.weight)[i];
  if (task.master == nullptr) {
    weight = narrow<T>(value);
    if (stalls == nullptr || value == old) return;
    const bool stalled = static_cast<double>(widen(weight)) == old;
    stalls->add({1, stalled ? 1 : 0, stalled ? static_cast<float>(std::abs(old)) : 0,
                 stalled ? static_cast<float>(std::abs(value - old)) : 0});
  } else {
    task.master[i] = static_cast<float>(value);
    weight = narrow<T>(task.master[i]);
  }
}

template <class T, class S>
void sgd_wide(const SgdTask& task, const SgdScalars& s) {
  for_each_block(task.weights, block, [&](std::int64_t begin, std::int64_t end, Stalls* stalls) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double w = get_wide<T>(task.weights, i);
      double g = static_cast<double>(widen(static_cast<const T*>(task.gradient)[i])) + s.weight_decay * w;
      if (task.velocity) {
        S& velocity = static_cast<S*>(task.velocity)[i];
        const double v = task.first ? g : s.momentum * static_cast<double>(widen(velocity)) + g;
        velocity = narrow<S>(v);
        g = s.nesterov ? g + s.momentum * v : v;
      }
      set_wide<T>(task.weights, i, w, w - s.lr * g, stalls);
    }
  });
}

template <class T, class S>
void adam_wide(const AdamTask& task, const AdamScalars& s) {
  for_each_block(task.weights, block, [&](std::int64_t begin, std::int64_t end, Stalls* stalls) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double old = get_wide<T>(task.weights, i);
      const double g = static_cast<double>(widen(static_cast<const T*>(task.gradient)[i])) + s.weight_decay * old;
      S &mean = static_cast<S*>(task.mean)[i], &square = static_cast<S*>(task.square)[i];
      const double m = s.beta1 * static_cast<double>(widen(mean)) + (1 - s.beta1) * g;
      double v = s.beta2 * static_cast<double>(widen(square)) + (1 - s.beta2) * g * g;
      mean = narrow<S>(m);
      square = narrow<S>(v);
      if (task.largest) {
        S& largest = static_cast<S*>(task.largest)[i];
        v = std::max(v, static_cast<double>(widen(largest)));
        largest = narrow<S>(v);
      }
      const double w = old * s.decay_factor - task.step_size * m / (std::sqrt(v) * task.square_factor + s.eps);
      set_wide<T>(task.weights, i, old, w, stalls);
    }
  });
}

// f.operator()<T, S>() for the floating element type and the state type.
template <class F>
void visit_floating(DType dtype, DType state, F&& f) {
  const auto with_state = [&]<class T>() {
    if (state == DType::float64)
      f.template operator()<T, double>();
    else if (state == DType::bfloat16)
      f.template operator()<T, BFloat16>();
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

bool in_float32(DType dtype, DType state) { return dtype != DType::float64 && state != DType::float64; }

}  // namespace

void Stalls::add(const Stalls& other) {
  moved += other.moved;
  stalled += other.stalled;
  weight = std::max(weight, other.weight);
  change = std::max(change, other.change);
}

void sgd(std::span<const SgdTask> tasks, const SgdScalars& s) {
  use_isa();
  for (const SgdTask& task : tasks) {
    if (in_float32(task.weights.dtype, task.state_dtype))
      HWY_DYNAMIC_DISPATCH(sgd_float32)(task, s);
    else
      visit_floating(task.weights.dtype, task.state_dtype, [&]<class T, class S>() { sgd_wide<T, S>(task, s); });
  }
}

void adam(std::span<const AdamTask> tasks, const AdamScalars& s) {
  use_isa();
  for (const AdamTask& task : tasks) {
    if (in_float32(task.weights.dtype, task.state_dtype))
      HWY_DYNAMIC_DISPATCH(adam_float32)(task, s);
    else
      visit_floating(task.weights.dtype, task.state_dtype, [&]<class T, class S>() { adam_wide<T, S>(task, s); });
  }
}

}  // namespace everyo::kernels
#endif
