#include "kernels/combine.h"

#include <type_traits>

#include "everyo/half.h"
#include "kernels/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/combine.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Wide = hn::ScalableTag<double>;
using Single = hn::Rebind<float, Wide>;

HWY_INLINE hn::Vec<Wide> load(const float* x) { return hn::PromoteTo(Wide(), hn::LoadU(Single(), x)); }
HWY_INLINE hn::Vec<Wide> load(const double* x) { return hn::LoadU(Wide(), x); }
HWY_INLINE void store(hn::Vec<Wide> v, double* to) { hn::StoreU(v, Wide(), to); }
HWY_INLINE void store(hn::Vec<Wide> v, float* to) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // elsewhere Highway may saturate where infinity is right
  hn::StoreU(hn::DemoteTo(Single(), v), Single(), to);
#else
  HWY_ALIGN double values[hn::MaxLanes(Wide())];
  hn::Store(v, Wide(), values);
  for (std::size_t l = 0; l < hn::Lanes(Wide()); ++l) to[l] = static_cast<float>(values[l]);
#endif
}

// The whole vectors of a sum over `divisor`; how many elements that were. Four at a time, so that loads overlap.
template <bool weighted, class T>
std::int64_t sum_vectors(const void* const* parts, std::size_t ranks, const double* weights, double divisor, T* out,
                         std::int64_t n) {
  const Wide d;
  using V = hn::Vec<Wide>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V by = hn::Set(d, divisor);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::size_t r = 0; r < ranks; ++r) {
      const T* from = static_cast<const T*>(parts[r]) + i;
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < 4; ++j) {
        V x = load(from + j * lanes);
        if constexpr (weighted) x = hn::Mul(x, hn::Set(d, weights[r]));
        sum[j] = r == 0 ? x : hn::Add(sum[j], x);
      }
    }
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) store(divisor == 1 ? sum[j] : hn::Div(sum[j], by), out + i + j * lanes);
  }
  return i;
}

template <class T>
std::int64_t sum_parts(const void* const* parts, std::size_t ranks, const double* weights, double divisor, T* out,
                       std::int64_t n) {
  return weights == nullptr ? sum_vectors<false>(parts, ranks, weights, divisor, out, n)
                            : sum_vectors<true>(parts, ranks, weights, divisor, out, n);
}
std::int64_t sum_floats(const void* const* parts, std::size_t ranks, const double* weights, double divisor, float* out,
                        std::int64_t n) {
  return sum_parts(parts, ranks, weights, divisor, out, n);
}
std::int64_t sum_doubles(const void* const* parts, std::size_t ranks, const double* weights, double divisor,
                         double* out, std::int64_t n) {
  return sum_parts(parts, ranks, weights, divisor, out, n);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(sum_floats);
HWY_EXPORT(sum_doubles);

// What is summed: the parts, their weights (null: all 1), and what their sum is divided by.
struct Sum {
  std::span<const void* const> parts;
  const double* weights;
  double divisor;
};

template <class T>
T sum_at(const Sum& s, std::int64_t i) {
  const auto at = [&](std::size_t r) { return static_cast<const T*>(s.parts[r])[i]; };
  if constexpr (is_floating(dtype_v<T>)) {
    const auto term = [&](std::size_t r) {
      const auto x = static_cast<double>(widen(at(r)));
      return s.weights == nullptr ? x : x * s.weights[r];
    };
    double sum = term(0);
    for (std::size_t r = 1; r < s.parts.size(); ++r) sum += term(r);
    return narrow<T>(sum / s.divisor);
  } else {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < s.parts.size(); ++r) sum += static_cast<std::uint64_t>(at(r));
    return static_cast<T>(sum);
  }
}

template <class T>
T extreme_at(bool max, std::span<const void* const> parts, std::int64_t i) {
  const auto at = [&](std::size_t r) { return static_cast<const T*>(parts[r])[i]; };
  T best = at(0);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const auto a = widen(best), b = widen(at(r));
    if (a != a) break;  // NaN
    if (b != b || (max ? b > a : b < a)) best = at(r);
  }
  return best;
}

void sum_all(DType dtype, const Sum& s, void* out, std::int64_t n) noexcept {
  use_isa();
  std::int64_t done = 0;
  if (dtype == float32)
    done = HWY_DYNAMIC_DISPATCH(sum_floats)(s.parts.data(), s.parts.size(), s.weights, s.divisor,
                                            static_cast<float*>(out), n);
  if (dtype == float64)
    done = HWY_DYNAMIC_DISPATCH(sum_doubles)(s.parts.data(), s.parts.size(), s.weights, s.divisor,
                                             static_cast<double*>(out), n);
  visit_dtype(dtype, [&]<class T>() {
    for (std::int64_t i = done; i < n; ++i) static_cast<T*>(out)[i] = sum_at<T>(s, i);
  });
}

constexpr std::size_t most_parts = 256;

}  // namespace

void combine(Combine how, DType dtype, std::span<const void* const> parts, void* out, std::int64_t n,
             std::span<const double> weights) noexcept {
  if (how == Combine::min || how == Combine::max) {
    return visit_dtype(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = extreme_at<T>(how == Combine::max, parts, i);
    });
  }
  if (weights.empty())
    return sum_all(dtype, {parts, nullptr, how == Combine::mean ? static_cast<double>(parts.size()) : 1}, out, n);
  // Zero times a value that is not finite would not be 0.
  const void* counting[most_parts];
  double their_weights[most_parts], total = 0;
  std::size_t count = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (weights[r] == 0) continue;
    counting[count] = parts[r];
    their_weights[count++] = weights[r];
    total += weights[r];
  }
  if (count != 0) sum_all(dtype, {{counting, count}, their_weights, total}, out, n);
}

}  // namespace everyo::kernels
#endif
