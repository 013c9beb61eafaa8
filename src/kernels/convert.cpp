#include "kernels/convert.h"

#include <algorithm>
#include <cstring>

#include "everyo/half.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/double-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

void float16_to_float32(const Float16* in, float* out, std::size_t n) { copy_elements(in, out, n); }
void bfloat16_to_float32(const BFloat16* in, float* out, std::size_t n) { copy_elements(in, out, n); }
void float32_to_float16(const float* in, Float16* out, std::size_t n) { copy_elements(in, out, n); }
void float32_to_bfloat16(const float* in, BFloat16* out, std::size_t n) { copy_elements(in, out, n); }

// One rounding an element, the same for a vector as for the scalars of the tail.
template <class From, class To>
void through_double(const From* in, To* out, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Double());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store_double(load_double(in + i), out + i);
  for (; i < n; ++i) out[i] = static_cast<To>(in[i]);
}
void float32_to_float64(const float* in, double* out, std::size_t n) { through_double(in, out, n); }
void float64_to_float32(const double* in, float* out, std::size_t n) { through_double(in, out, n); }

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(float16_to_float32);
HWY_EXPORT(bfloat16_to_float32);
HWY_EXPORT(float32_to_float16);
HWY_EXPORT(float32_to_bfloat16);
HWY_EXPORT(float32_to_float64);
HWY_EXPORT(float64_to_float32);

void convert_array(const Float16* in, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float16_to_float32)(in, out, n);
}
void convert_array(const BFloat16* in, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(bfloat16_to_float32)(in, out, n);
}
void convert_array(const float* in, Float16* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float32_to_float16)(in, out, n);
}
void convert_array(const float* in, BFloat16* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float32_to_bfloat16)(in, out, n);
}
void convert_array(const float* in, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float32_to_float64)(in, out, n);
}
void convert_array(const double* in, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float64_to_float32)(in, out, n);
}

template <class From, class To>
void convert_array(const From* in, To* out, std::size_t n) {
  constexpr bool from_half = is_half(dtype_v<From>), to_half = is_half(dtype_v<To>);
  if constexpr (from_half || (to_half && (std::is_same_v<From, bool> || std::is_same_v<From, std::uint8_t>))) {
    // A half, and an 8-bit integer, is a float32 exactly: halves go through the vector code in pieces.
    constexpr std::size_t piece = 256;
    float wide[piece];
    for (std::size_t i = 0; i < n; i += piece) {
      const std::size_t count = std::min(piece, n - i);
      convert_array(in + i, wide, count);
      convert_array(wide, out + i, count);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = narrow<To>(widen(in[i]));
  }
}

}  // namespace

void convert(DType from, const void* in, DType to, void* out, std::int64_t n) {
  if (n <= 0) return;
  if (from == to) {
    if (in != out) std::memcpy(out, in, static_cast<std::size_t>(n) * size_of(from));
    return;
  }
  use_isa();
  visit_dtype(from, [&]<class From>() {
    visit_dtype(to, [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) {
        parallel_for(n, std::int64_t{1} << 15, [&](std::int64_t begin, std::int64_t end) {
          convert_array(static_cast<const From*>(in) + begin, static_cast<To*>(out) + begin,
                        static_cast<std::size_t>(end - begin));
        });
      }
    });
  });
}

}  // namespace everyo::kernels
#endif
