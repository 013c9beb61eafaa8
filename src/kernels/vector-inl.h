// Loads and stores of elements as vectors of the type they are computed in, whole and partial. A partial vector goes
// through the same vector code as a whole one, so an element's bits do not depend on where it lies.
// Included once per Highway target.
#if defined(EVERYO_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_VECTOR_INL_H_
#undef EVERYO_KERNELS_VECTOR_INL_H_
#else
#define EVERYO_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "everyo/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The type an element is computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
using WideTag = hn::ScalableTag<Wide<T>>;
template <class T>
using WideVec = hn::Vec<WideTag<T>>;

inline constexpr bool has_avx512 = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;
inline constexpr bool has_avx2 = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;
/// Masked loads and stores touch nothing outside the mask; elsewhere a partial vector goes through a buffer.
template <class T>
inline constexpr bool can_mask = has_avx512 || (has_avx2 && sizeof(T) >= 4);

using Words = hn::ScalableTag<std::uint32_t>;
using HalfWords = hn::Rebind<std::uint16_t, Words>;

/// The bits of 16-bit lanes, each in a 32-bit lane, to float32; exact.
template <class V>
HWY_INLINE WideVec<float> bfloat16_to_float(V words) {
  return hn::BitCast(WideTag<float>(), hn::ShiftLeft<16>(words));
}
template <class V>
HWY_INLINE WideVec<float> float16_to_float(V words) {
  const Words du;
  const WideTag<float> d;
  const auto magnitude = hn::And(words, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::And(words, hn::Set(du, 0x8000u)));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const auto small =
      hn::Mul(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<Words>(), magnitude)), hn::Set(d, 0x1p-24f));
  // Exponent 31 becomes 255; a NaN is quieted.
  auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7f800000u));
  special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7c00u)), hn::Or(special, hn::Set(du, 0x400000u)), special);
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400u)), hn::BitCast(du, small), normal);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bffu)), special, bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

/// float32 to the bits of a bfloat16, above 16 bits without a meaning: to nearest, ties to even; NaN quieted.
template <class V>
HWY_INLINE hn::Vec<Words> float_to_upper_bfloat16(V v) {
  const Words du;
  const auto bits = hn::BitCast(du, v);
  const auto up = [&]() HWY_ATTR {
    if constexpr (has_avx512)
      return hn::IfThenElse(hn::TestBit(bits, hn::Set(du, 0x10000u)), hn::Set(du, 0x8000u), hn::Set(du, 0x7fffu));
    else
      return hn::Add(hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
  }();
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Or(bits, hn::Set(du, 0x400000u)), hn::Add(bits, up));
}
/// float32 to the bits of a half in 32-bit lanes, rounded so.
template <class V>
HWY_INLINE hn::Vec<Words> float_to_bfloat16(V v) {
  return hn::ShiftRight<16>(float_to_upper_bfloat16(v));
}
template <class V>
HWY_INLINE hn::Vec<Words> float_to_float16(V v) {
  const Words du;
  const WideTag<float> d;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  // 112 leaves the exponent, and the carry of rounding may enter it: 65520 becomes infinity.
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, 112u << 23)), hn::Add(odd, hn::Set(du, 0xfffu))));
  // Adding 0.5 makes the last place of the sum the unit of float16's subnormals, and rounds to it.
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto small = hn::Sub(hn::BitCast(du, sum), hn::Set(du, 126u << 23));
  const auto nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113u << 23)), small, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fffffu)), hn::Set(du, 0x7c00u), result);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), nan, result);
  return hn::Or(result, sign);
}

template <class T>
inline constexpr bool is_half_element = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
using Float16Lanes = hn::Rebind<hwy::float16_t, Words>;  // that the processor converts
#endif

/// Halves of type T, as their bits, to float32; exact.
template <class T>
HWY_INLINE WideVec<float> widen_halves(hn::Vec<HalfWords> bits) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return bfloat16_to_float(hn::PromoteTo(Words(), bits));
  } else {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    return hn::PromoteTo(WideTag<float>(), hn::BitCast(Float16Lanes(), bits));
#else
    return float16_to_float(hn::PromoteTo(Words(), bits));
#endif
  }
}
/// Values below 65536 in 16 bits.
HWY_INLINE hn::Vec<HalfWords> narrow_words(hn::Vec<Words> words) {
  if constexpr (has_avx512)
    return hn::TruncateTo(HalfWords(), words);
  else
    return hn::DemoteTo(HalfWords(), hn::BitCast(hn::RebindToSigned<Words>(), words));
}
/// float32 to the bits of halves of type T, rounded once.
template <class T>
HWY_INLINE hn::Vec<HalfWords> to_halves(WideVec<float> v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return narrow_words(float_to_bfloat16(v));
  } else {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    return hn::BitCast(HalfWords(), hn::DemoteTo(Float16Lanes(), v));
#else
    return narrow_words(float_to_float16(v));
#endif
  }
}
template <class T>
const std::uint16_t* bits_of(const T* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}
template <class T>
std::uint16_t* bits_of(T* p) {
  return reinterpret_cast<std::uint16_t*>(p);
}

/// A whole vector of elements, widened.
template <class T>
HWY_INLINE WideVec<T> load(const T* p) {
  if constexpr (is_half_element<T>)
    return widen_halves<T>(hn::LoadU(HalfWords(), bits_of(p)));
  else
    return hn::LoadU(WideTag<T>(), p);
}

/// Stores a whole vector, rounded once to the element type.
template <class T, class V>
HWY_INLINE void store(V v, T* p) {
  if constexpr (is_half_element<T>)
    hn::StoreU(to_halves<T>(v), HalfWords(), bits_of(p));
  else
    hn::StoreU(v, WideTag<T>(), p);
}

/// The values as T would hold them: rounded for halves, unchanged for the others.
template <class T>
HWY_INLINE WideVec<T> round_to(WideVec<T> v) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return bfloat16_to_float(float_to_bfloat16(v));
  else if constexpr (std::is_same_v<T, Float16>)
    return widen_halves<T>(to_halves<T>(v));
  else
    return v;
}

/// Stores two whole vectors, one behind the other.
template <class T, class V>
HWY_INLINE void store_two(V low, V high, T* p) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<std::uint16_t, Words> d;
    return hn::StoreU(
        hn::ConcatOdd(d, hn::BitCast(d, float_to_upper_bfloat16(high)), hn::BitCast(d, float_to_upper_bfloat16(low))),
        d, bits_of(p));
  }
#endif
  store(low, p);
  store(high, p + hn::Lanes(WideTag<T>()));
}

/// The first `count` elements (fewer than a vector), zeros behind them. Reads nothing else.
template <class T>
HWY_INLINE WideVec<T> load_part(const T* p, std::size_t count) {
  const WideTag<T> d;
  if constexpr (can_mask<T> && is_half_element<T>) {
    const HalfWords words;
    return widen_halves<T>(hn::MaskedLoad(hn::FirstN(words, count), words, bits_of(p)));
  } else if constexpr (can_mask<T> && sizeof(T) >= 4) {
    return hn::MaskedLoad(hn::FirstN(d, count), d, p);
  } else {
    HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, count * sizeof(T));
    return load(buffer);
  }
}

template <class T, class V>
HWY_INLINE void store_part(V v, T* p, std::size_t count) {
  const WideTag<T> d;
  if constexpr (can_mask<T> && is_half_element<T>) {
    const HalfWords words;
    hn::BlendedStore(to_halves<T>(v), hn::FirstN(words, count), words, bits_of(p));
  } else if constexpr (can_mask<T> && sizeof(T) >= 4) {
    hn::BlendedStore(v, hn::FirstN(d, count), d, p);
  } else {
    HWY_ALIGN T buffer[hn::MaxLanes(d)];
    store(v, buffer);
    std::memcpy(p, buffer, count * sizeof(T));
  }
}

/// to[n] = from[n], between float and a half.
template <class From, class To>
HWY_NOINLINE void copy_elements(const From* from, To* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(WideTag<float>());
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) store_two(load(from + i), load(from + i + lanes), to + i);
  for (; i + lanes <= n; i += lanes) store(load(from + i), to + i);
  if (i < n) store_part(load_part(from + i, n - i), to + i, n - i);
}
/// Halves go through float in pieces of so many elements, which stay in the cache.
inline constexpr std::size_t piece = 256;

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
