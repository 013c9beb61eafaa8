#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// The element types. Halves are stored as 16-bit patterns and computed in float32.
enum class DType : std::uint8_t { float32, float64, float16, bfloat16, int64, int32, uint8, boolean };

inline constexpr DType float32 = DType::float32, float64 = DType::float64, float16 = DType::float16,
                       bfloat16 = DType::bfloat16, int64 = DType::int64, int32 = DType::int32, uint8 = DType::uint8,
                       boolean = DType::boolean;
inline constexpr std::size_t dtype_count = 8;

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) noexcept { return dtype <= DType::bfloat16; }
constexpr bool is_half(DType dtype) noexcept { return dtype == DType::float16 || dtype == DType::bfloat16; }

/// "float32", …, "bool".
EVERYO_API std::string_view name_of(DType dtype) noexcept;
/// The dtype of a name, letters in either case. Throws DTypeError for a name that is none.
EVERYO_API DType dtype_of(std::string_view name);

/// The dtype of `a op b`: the wider of two kinds (bool < integer < floating), the wider within a kind; float16 with
/// bfloat16 gives float32.
EVERYO_API DType promote(DType a, DType b) noexcept;

/// Numeric limits of a floating dtype (IEEE 754; bfloat16 is the upper half of a float32).
struct FloatInfo {
  double eps;              ///< distance from 1 to the next value
  double max;              ///< largest finite value
  double smallest_normal;  ///< smallest positive value of full precision
  double smallest_subnormal;
  int bits;
};
/// Throws DTypeError for a dtype that is not floating.
EVERYO_API FloatInfo finfo(DType dtype);

/// An IEEE 754 binary16 value, as its bits.
struct Float16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(Float16, Float16) = default;
};
/// A bfloat16 value, as its bits.
struct BFloat16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(BFloat16, BFloat16) = default;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
/// The DType whose elements are T.
template <class T>
inline constexpr DType dtype_v = DTypeOf<std::remove_cv_t<T>>::value;

/// Calls `f.template operator()<T>()` with the element type of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f.template operator()<double>();
    case DType::float16: return f.template operator()<Float16>();
    case DType::bfloat16: return f.template operator()<BFloat16>();
    case DType::int64: return f.template operator()<std::int64_t>();
    case DType::int32: return f.template operator()<std::int32_t>();
    case DType::uint8: return f.template operator()<std::uint8_t>();
    case DType::boolean: return f.template operator()<bool>();
    case DType::float32: break;
  }
  return f.template operator()<float>();
}

}  // namespace everyo::inline v1
