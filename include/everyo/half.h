#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "everyo/dtype.h"

// Scalar conversions of the half types: exact widening, narrowing to nearest with ties to even, NaN stays NaN
// (quieted), overflow to infinity, gradual underflow. kernels/convert.h has the same for arrays.
namespace everyo::inline v1 {

constexpr float to_float(Float16 h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16, exponent = (h.bits >> 10) & 0x1fu,
                      mantissa = h.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal, or zero
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

/// A bfloat16 is the upper half of a float: its bits are kept, those of a signalling NaN too.
constexpr float to_float(BFloat16 b) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16); }

constexpr Float16 to_float16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const auto with_sign = [sign](std::uint32_t b) { return Float16{static_cast<std::uint16_t>(sign | b)}; };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u | (magnitude >> 13 & 0x3ffu));  // NaN
  if (magnitude >= 0x477ff000u) return with_sign(0x7c00u);                              // from 65520 on: infinity
  if (magnitude < 0x33000000u) return with_sign(0);                                     // below 2^-25
  std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, result = 0, shift = 13;
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 113) {
    shift = 126 - exponent;  // subnormal: units of 2^-24
  } else {
    mantissa &= 0x7fffffu;
    result = (exponent - 112) << 10;
  }
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1);
  result += mantissa >> shift;
  if (rest > tie || (rest == tie && (result & 1u) != 0)) ++result;  // a carry moves into the exponent, as it should
  return with_sign(result);
}

constexpr BFloat16 to_bfloat16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};  // NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/// Any element type to the type it is computed in: halves to float, the others unchanged.
template <class T>
constexpr auto widen(T value) noexcept {
  if constexpr (requires { to_float(value); } && !std::is_arithmetic_v<T>)
    return to_float(value);
  else
    return value;
}
/// A double to float by rounding to odd: a later rounding to a half is then the only one that shows.
constexpr float round_to_odd(double value) noexcept {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const double magnitude = value < 0 ? -value : value;
  if (static_cast<double>(std::bit_cast<float>(bits & 0x7fffffffu)) > magnitude) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}
constexpr float round_to_odd(float value) noexcept { return value; }
constexpr float round_to_odd(std::int64_t value) noexcept {
  constexpr std::int64_t low = 0x7ff;  // a double holds the other 53 bits
  const bool exact = (value >= -(std::int64_t{1} << 53) && value <= std::int64_t{1} << 53) || (value & low) == 0;
  return round_to_odd(static_cast<double>(exact ? value : (value & ~low) | (low + 1)));
}

/// A floating value to an integer: towards zero, the nearest end of the range for what lies outside, 0 for NaN.
template <class T, class U>
constexpr T saturate(U value) noexcept {
  // The ends as floating values: the lower is exact, the upper is one above the range.
  constexpr auto low = static_cast<U>(std::numeric_limits<T>::min());
  constexpr auto above = static_cast<U>(std::numeric_limits<T>::max() / 2 + 1) * U{2};
  if (value != value) return T{0};
  if (value < low) return std::numeric_limits<T>::min();
  if (value >= above) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}
/// The way back, with one rounding, ties to even; from floating to integer as saturate() does.
template <class T, class U>
constexpr T narrow(U value) noexcept {
  constexpr bool to_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
  if constexpr (to_half) {
    using Wide = std::conditional_t<std::is_integral_v<U>, std::int64_t, U>;
    const float once = round_to_odd(static_cast<Wide>(value));
    if constexpr (std::is_same_v<T, Float16>)
      return to_float16(once);
    else
      return to_bfloat16(once);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != U{};
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<U>) {
    return saturate<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace everyo::inline v1
