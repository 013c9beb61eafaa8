#include "everyo/dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, dtype_count> names{"float32", "float64", "float16", "bfloat16",
                                                          "int64",   "int32",   "uint8",   "bool"};

constexpr char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// bool < uint8 < int32 < int64 < halves < float32 < float64
constexpr int width_rank(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean: return 0;
    case DType::uint8: return 1;
    case DType::int32: return 2;
    case DType::int64: return 3;
    case DType::float16:
    case DType::bfloat16: return 4;
    case DType::float32: return 5;
    case DType::float64: return 6;
  }
  return 0;
}

template <class T>
constexpr FloatInfo info_of() noexcept {
  using Limits = std::numeric_limits<T>;
  return {Limits::epsilon(), Limits::max(), Limits::min(), Limits::denorm_min(), static_cast<int>(sizeof(T) * 8)};
}

}  // namespace

std::string_view name_of(DType dtype) noexcept { return names[static_cast<std::size_t>(dtype)]; }

DType dtype_of(std::string_view name) {
  const auto found = std::ranges::find_if(
      names, [&](std::string_view known) { return std::ranges::equal(known, name, {}, {}, lower); });
  if (found == names.end()) {
    throw DTypeError(fmt::format("[dtype] unknown dtype '{}'; need one of {}", name, fmt::join(names, ", ")));
  }
  return static_cast<DType>(found - names.begin());
}

DType promote(DType a, DType b) noexcept {
  if (a == b) return a;
  if (is_half(a) && is_half(b)) return DType::float32;  // neither holds the other's values
  return width_rank(a) < width_rank(b) ? b : a;
}

FloatInfo finfo(DType dtype) {
  switch (dtype) {
    case DType::float32: return info_of<float>();
    case DType::float64: return info_of<double>();
    case DType::float16: return {0x1p-10, 65504.0, 0x1p-14, 0x1p-24, 16};
    case DType::bfloat16: return {0x1p-7, 0x1.FEp127, 0x1p-126, 0x1p-133, 16};
    default: break;
  }
  throw DTypeError(
      fmt::format("[finfo] dtype is {}; need a floating dtype: float32, float64, float16 or bfloat16", name_of(dtype)));
}

}  // namespace everyo::inline v1
