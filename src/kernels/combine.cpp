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

// The whole vectors of a sum over `divisor`; how many elements that were. Four at a time, since each waits for its
// loads alone.
template <class T>
std::int64_t sum_vectors(const void* const* parts, std::size_t ranks, double divisor, T* out, std::int64_t n) {
  const Wide d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, divisor);
  const auto part = [&](std::size_t r) { return static_cast<const T*>(parts[r]); };
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    auto a = load(part(0) + i), b = load(part(0) + i + lanes), c = load(part(0) + i + 2 * lanes),
         e = load(part(0) + i + 3 * lanes);
    for (std::size_t r = 1; r < ranks; ++r) {
      const T* from = part(r) + i;
      a = hn::Add(a, load(from));
      b = hn::Add(b, load(from + lanes));
      c = hn::Add(c, load(from + 2 * lanes));
      e = hn::Add(e, load(from + 3 * lanes));
    }
    if (divisor != 1) a = hn::Div(a, scale), b = hn::Div(b, scale), c = hn::Div(c, scale), e = hn::Div(e, scale);
    store(a, out + i);
    store(b, out + i + lanes);
    store(c, out + i + 2 * lanes);
    store(e, out + i + 3 * lanes);
  }
  return i;
}

std::int64_t sum_floats(const void* const* parts, std::size_t ranks, double divisor, float* out, std::int64_t n) {
  return sum_vectors(parts, ranks, divisor, out, n);
}
std::int64_t sum_doubles(const void* const* parts, std::size_t ranks, double divisor, double* out, std::int64_t n) {
  return sum_vectors(parts, ranks, divisor, out, n);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(sum_floats);
HWY_EXPORT(sum_doubles);

template <class T>
T combined(Combine how, std::span<const void* const> parts, std::int64_t i) {
  const auto at = [&](std::size_t r) { return static_cast<const T*>(parts[r])[i]; };
  if (how == Combine::sum || how == Combine::mean) {
    if constexpr (is_floating(dtype_v<T>)) {
      double sum = static_cast<double>(widen(at(0)));
      for (std::size_t r = 1; r < parts.size(); ++r) sum += static_cast<double>(widen(at(r)));
      return narrow<T>(how == Combine::mean ? sum / static_cast<double>(parts.size()) : sum);
    } else {
      std::uint64_t sum = 0;
      for (std::size_t r = 0; r < parts.size(); ++r) sum += static_cast<std::uint64_t>(at(r));
      return static_cast<T>(sum);
    }
  }
  T best = at(0);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const T x = at(r);
    const auto a = widen(best), b = widen(x);
    if (a != a) break;  // NaN
    if (b != b || (how == Combine::max ? b > a : b < a)) best = x;
  }
  return best;
}

}  // namespace

void combine(Combine how, DType dtype, std::span<const void* const> parts, void* out, std::int64_t n) noexcept {
  std::int64_t done = 0;
  if ((how == Combine::sum || how == Combine::mean) && (dtype == float32 || dtype == float64)) {
    use_isa();
    const double divisor = how == Combine::mean ? static_cast<double>(parts.size()) : 1;
    done = dtype == float32
               ? HWY_DYNAMIC_DISPATCH(sum_floats)(parts.data(), parts.size(), divisor, static_cast<float*>(out), n)
               : HWY_DYNAMIC_DISPATCH(sum_doubles)(parts.data(), parts.size(), divisor, static_cast<double*>(out), n);
  }
  visit_dtype(dtype, [&]<class T>() {
    for (std::int64_t i = done; i < n; ++i) static_cast<T*>(out)[i] = combined<T>(how, parts, i);
  });
}

}  // namespace everyo::kernels
#endif
