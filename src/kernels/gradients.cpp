#include "kernels/gradients.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradients.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/each_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

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

// sums[block] of the blocks of `gradient_block` elements.
void squares_of_blocks(DType dtype, const void* values, std::int64_t size, double* sums) {
  parallel_for(size, gradient_block, [&](std::int64_t begin, std::int64_t end) {
    const auto in = [&]<class T>() {
      return squares_of(static_cast<const T*>(values) + begin, static_cast<std::size_t>(end - begin));
    };
    double& sum = sums[begin / gradient_block];
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
  parallel_for(size, gradient_block, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
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

// x /= divisor, if `divides`; whether all of x is finite.
template <bool divides, class T>
bool finite_vectors(T* x, std::size_t n, float divisor) {
  const WideTag<float> d;
  const auto by = hn::Set(d, divisor), zero = hn::Zero(d);
  auto marks = zero;  // NaN where an element was infinite or NaN: a product with 0 is 0 of all others
  each_vector(n, [&](std::size_t i, auto load_at, auto store_at) HWY_ATTR {
    auto v = load_at(x + i);
    if constexpr (divides) {
      v = hn::Div(v, by);
      store_at(v, x + i);
    }
    marks = hn::MulAdd(v, zero, marks);
  });
  return hn::AllTrue(d, hn::Eq(marks, zero));
}

template <bool divides, class Values>
bool finite_float32(DType dtype, Values* values, std::int64_t size, float divisor) {
  std::atomic<bool> finite = true;
  parallel_for(size, gradient_block, [&](std::int64_t begin, std::int64_t end) {
    const auto in = [&]<class T>() {
      using Element = std::conditional_t<std::is_const_v<Values>, const T, T>;
      return finite_vectors<divides>(static_cast<Element*>(values) + begin, static_cast<std::size_t>(end - begin),
                                     divisor);
    };
    const bool all = dtype == DType::float16    ? in.template operator()<Float16>()
                     : dtype == DType::bfloat16 ? in.template operator()<BFloat16>()
                                                : in.template operator()<float>();
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed);
}
bool divide_float32(DType dtype, void* values, std::int64_t size, float divisor) {
  return finite_float32<true>(dtype, values, size, divisor);
}
bool check_float32(DType dtype, const void* values, std::int64_t size) {
  return finite_float32<false>(dtype, values, size, 1);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(squares_of_blocks);
HWY_EXPORT(scale_float32);
HWY_EXPORT(clip_float32);
HWY_EXPORT(divide_float32);
HWY_EXPORT(check_float32);

}  // namespace

double sum_of_squares(DType dtype, const void* values, std::int64_t size) {
  use_isa();
  const std::int64_t blocks = (size + gradient_block - 1) / gradient_block;
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

bool divide_in_place(DType dtype, void* values, std::int64_t size, double divisor) {
  use_isa();
  if (dtype != DType::float64)
    return HWY_DYNAMIC_DISPATCH(divide_float32)(dtype, values, size, static_cast<float>(divisor));
  auto* x = static_cast<double*>(values);
  for (std::int64_t i = 0; i < size; ++i) x[i] /= divisor;
  return all_finite(dtype, values, size);
}

bool all_finite(DType dtype, const void* values, std::int64_t size) {
  use_isa();
  if (dtype != DType::float64) return HWY_DYNAMIC_DISPATCH(check_float32)(dtype, values, size);
  const auto* x = static_cast<const double*>(values);
  return std::all_of(x, x + size, [](double v) { return std::isfinite(v); });
}

}  // namespace everyo::kernels
#endif
