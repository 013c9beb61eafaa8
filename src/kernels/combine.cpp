#include "kernels/combine.h"

#include <type_traits>

#include "everyo/half.h"
#include "kernels/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/combine.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/double-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// The whole vectors of a sum over `divisor`; how many elements that were. Four at a time, so that loads overlap.
template <bool weighted, class T>
std::int64_t sum_vectors(const void* const* parts, std::size_t ranks, const double* weights, double divisor, T* out,
                         std::int64_t n) {
  const Double d;
  using V = hn::Vec<Double>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V by = hn::Set(d, divisor);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::size_t r = 0; r < ranks; ++r) {
      const T* from = static_cast<const T*>(parts[r]) + i;
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < 4; ++j) {
        V x = load_double(from + j * lanes);
        if constexpr (weighted) x = hn::Mul(x, hn::Set(d, weights[r]));
        sum[j] = r == 0 ? x : hn::Add(sum[j], x);
      }
    }
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) store_double(divisor == 1 ? sum[j] : hn::Div(sum[j], by), out + i + j * lanes);
  }
  return i;
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// To float's precision, rounded to odd, as round_to_odd() does: rounding that to a float16 is then the only one that
// shows. float's subnormals, where this would be wrong, are 0 in float16.
HWY_INLINE hn::Vec<Double> round_to_odd_float(hn::Vec<Double> v) {
  const hn::RebindToUnsigned<Double> du;
  const auto below = hn::Set(du, (std::uint64_t{1} << 29) - 1);
  const auto bits = hn::BitCast(du, v);
  return hn::BitCast(Double(), hn::AndNot(below, hn::Or(bits, hn::Add(hn::And(bits, below), below))));
}
// To bfloat16's precision, to nearest, ties to even: exact as a float.
HWY_INLINE hn::Vec<Double> round_to_bfloat16(hn::Vec<Double> v) {
  const hn::RebindToUnsigned<Double> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<45>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, (std::uint64_t{1} << 44) - 1)));
  return hn::BitCast(Double(), hn::AndNot(hn::Set(du, (std::uint64_t{1} << 45) - 1), rounded));
}
HWY_INLINE void store_halves(hn::Vec<Double> low, hn::Vec<Double> high, Float16* to) {
  const Single half;
  store(hn::Combine(WideTag<Float16>(), hn::DemoteTo(half, round_to_odd_float(high)),
                    hn::DemoteTo(half, round_to_odd_float(low))),
        to);
}
HWY_INLINE void store_halves(hn::Vec<Double> low, hn::Vec<Double> high, BFloat16* to) {
  const Double d;
  const auto is_small = [&](hn::Vec<Double> v) HWY_ATTR { return hn::Lt(hn::Abs(v), hn::Set(d, 0x1p-126)); };
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Or(is_small(low), is_small(high))))) {  // subnormals have fewer bits
    HWY_ALIGN double values[2 * hn::MaxLanes(d)];
    hn::Store(low, d, values);
    hn::Store(high, d, values + hn::Lanes(d));
    for (std::size_t l = 0; l < 2 * hn::Lanes(d); ++l) to[l] = narrow<BFloat16>(values[l]);
    return;
  }
  const Single half;
  const auto both = hn::Combine(WideTag<BFloat16>(), hn::DemoteTo(half, round_to_bfloat16(high)),
                                hn::DemoteTo(half, round_to_bfloat16(low)));
  hn::StoreU(narrow_words(hn::ShiftRight<16>(hn::BitCast(Words(), both))), HalfWords(), bits_of(to));
}
template <bool weighted, class T>
std::int64_t sum_vectors_of_halves(const void* const* parts, std::size_t ranks, const double* weights, double divisor,
                                   T* out, std::int64_t n) {
  const Double d;
  using V = hn::Vec<Double>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(WideTag<T>()));
  const V by = hn::Set(d, divisor);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::size_t r = 0; r < ranks; ++r) {
      const T* from = static_cast<const T*>(parts[r]) + i;
#pragma GCC unroll 2
      for (std::int64_t j = 0; j < 2; ++j) {
        const WideVec<T> both = load(from + j * lanes);
        V x[2] = {hn::PromoteTo(d, hn::LowerHalf(Single(), both)), hn::PromoteTo(d, hn::UpperHalf(Single(), both))};
#pragma GCC unroll 2
        for (std::int64_t k = 0; k < 2; ++k) {
          if constexpr (weighted) x[k] = hn::Mul(x[k], hn::Set(d, weights[r]));
          sum[2 * j + k] = r == 0 ? x[k] : hn::Add(sum[2 * j + k], x[k]);
        }
      }
    }
    if (divisor != 1)
      for (V& s : sum) s = hn::Div(s, by);
    store_halves(sum[0], sum[1], out + i);
    store_halves(sum[2], sum[3], out + i + lanes);
  }
  return i;
}
#endif

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
template <class T>
std::int64_t sum_parts_of_halves([[maybe_unused]] const void* const* parts, [[maybe_unused]] std::size_t ranks,
                                 [[maybe_unused]] const double* weights, [[maybe_unused]] double divisor,
                                 [[maybe_unused]] T* out, [[maybe_unused]] std::int64_t n) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return weights == nullptr ? sum_vectors_of_halves<false>(parts, ranks, weights, divisor, out, n)
                            : sum_vectors_of_halves<true>(parts, ranks, weights, divisor, out, n);
#else
  return 0;
#endif
}
std::int64_t sum_float16(const void* const* parts, std::size_t ranks, const double* weights, double divisor,
                         Float16* out, std::int64_t n) {
  return sum_parts_of_halves(parts, ranks, weights, divisor, out, n);
}
std::int64_t sum_bfloat16(const void* const* parts, std::size_t ranks, const double* weights, double divisor,
                          BFloat16* out, std::int64_t n) {
  return sum_parts_of_halves(parts, ranks, weights, divisor, out, n);
}
std::int64_t sum_doubles(const void* const* parts, std::size_t ranks, const double* weights, double divisor,
                         double* out, std::int64_t n) {
  return sum_parts(parts, ranks, weights, divisor, out, n);
}

// The whole vectors of a maximum of floats, or of a minimum, by their bits: numbers in order, both zeros alike, and NaN
// beyond all. The first of equals stays. How many elements that were.
template <class Bits>
std::int64_t extreme_floats(const void* const* parts, std::size_t ranks, bool max, std::int64_t infinity, Bits* out,
                            std::int64_t n) {
  const hn::ScalableTag<Bits> du;
  const hn::RebindToSigned<decltype(du)> di;
  using Signed = hn::TFromD<decltype(di)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(du));
  const auto downwards = hn::Set(di, static_cast<Signed>(max ? 0 : -1));
  const auto order = [&](hn::Vec<decltype(du)> bits) HWY_ATTR {
    const auto as_signed = hn::BitCast(di, bits);
    const auto magnitude = hn::And(as_signed, hn::Set(di, hwy::LimitsMax<Signed>()));
    const auto negative = hn::Xor(hn::BroadcastSignBit(as_signed), downwards);
    const auto number = hn::Sub(hn::Xor(magnitude, negative), negative);
    const auto is_nan = hn::Gt(magnitude, hn::Set(di, static_cast<Signed>(infinity)));
    return hn::IfThenElse(is_nan, hn::Set(di, hwy::LimitsMax<Signed>()), number);
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto best = hn::LoadU(du, static_cast<const Bits*>(parts[0]) + i);
    auto place = order(best);
    for (std::size_t r = 1; r < ranks; ++r) {
      const auto next = hn::LoadU(du, static_cast<const Bits*>(parts[r]) + i);
      const auto next_place = order(next);
      const auto beyond = hn::Gt(next_place, place);
      best = hn::IfThenElse(hn::RebindMask(du, beyond), next, best);
      place = hn::Max(next_place, place);
    }
    hn::StoreU(best, du, out + i);
  }
  return i;
}
template <class T>
std::int64_t extreme_integers(const void* const* parts, std::size_t ranks, bool max, T* out, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto best = hn::LoadU(d, static_cast<const T*>(parts[0]) + i);
    for (std::size_t r = 1; r < ranks; ++r) {
      const auto next = hn::LoadU(d, static_cast<const T*>(parts[r]) + i);
      best = max ? hn::Max(best, next) : hn::Min(best, next);
    }
    hn::StoreU(best, d, out + i);
  }
  return i;
}
std::int64_t extremes(DType dtype, bool max, const void* const* parts, std::size_t ranks, void* out, std::int64_t n) {
  const auto floats = [&]<class Bits>(Bits, std::int64_t infinity) {
    return extreme_floats(parts, ranks, max, infinity, static_cast<Bits*>(out), n);
  };
  const auto integers = [&]<class T>(T) { return extreme_integers(parts, ranks, max, static_cast<T*>(out), n); };
  switch (dtype) {
    case float16: return floats(std::uint16_t{}, 0x7c00);
    case bfloat16: return floats(std::uint16_t{}, 0x7f80);
    case float32: return floats(std::uint32_t{}, 0x7f80'0000);
    case float64: return floats(std::uint64_t{}, 0x7ff0'0000'0000'0000);
    case int32: return integers(std::int32_t{});
    case int64: return integers(std::int64_t{});
    default: return integers(std::uint8_t{});  // of bools, too
  }
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(sum_floats);
HWY_EXPORT(sum_doubles);
HWY_EXPORT(sum_float16);
HWY_EXPORT(sum_bfloat16);
HWY_EXPORT(extremes);

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
  const void* const* const parts = s.parts.data();
  const std::size_t ranks = s.parts.size();
  if (dtype == float32)
    done = HWY_DYNAMIC_DISPATCH(sum_floats)(parts, ranks, s.weights, s.divisor, static_cast<float*>(out), n);
  if (dtype == float64)
    done = HWY_DYNAMIC_DISPATCH(sum_doubles)(parts, ranks, s.weights, s.divisor, static_cast<double*>(out), n);
  if (dtype == float16)
    done = HWY_DYNAMIC_DISPATCH(sum_float16)(parts, ranks, s.weights, s.divisor, static_cast<Float16*>(out), n);
  if (dtype == bfloat16)
    done = HWY_DYNAMIC_DISPATCH(sum_bfloat16)(parts, ranks, s.weights, s.divisor, static_cast<BFloat16*>(out), n);
  visit_dtype(dtype, [&]<class T>() {
    for (std::int64_t i = done; i < n; ++i) static_cast<T*>(out)[i] = sum_at<T>(s, i);
  });
}

constexpr std::size_t most_parts = 256;

}  // namespace

void combine(ReduceOp how, DType dtype, std::span<const void* const> parts, void* out, std::int64_t n,
             std::span<const double> weights) noexcept {
  if (how == ReduceOp::min || how == ReduceOp::max) {
    use_isa();
    const bool max = how == ReduceOp::max;
    const std::int64_t done = HWY_DYNAMIC_DISPATCH(extremes)(dtype, max, parts.data(), parts.size(), out, n);
    return visit_dtype(dtype, [&]<class T>() {
      for (std::int64_t i = done; i < n; ++i) static_cast<T*>(out)[i] = extreme_at<T>(max, parts, i);
    });
  }
  if (weights.empty())
    return sum_all(dtype, {parts, nullptr, how == ReduceOp::mean ? static_cast<double>(parts.size()) : 1}, out, n);
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
