#pragma once
#include <cstdint>

// Float32 as bfloat16 in AVX-512's vectors, for the files that are written in its instructions.
#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of _mm512_undefined_epi32(), which is so on purpose
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

namespace everyo::kernels {

/// The first `count` of 16 lanes; none below 0, all from 16 on.
constexpr __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1);
}

/// bfloat16 in the upper half of each lane, above 16 bits without a meaning: to nearest, ties to even; NaN quieted. Not
/// VCVTNEPS2BF16, for which subnormal numbers are zeros.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i float_to_upper_bfloat16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)),
                  nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i up = _mm512_mask_blend_epi32(odd, _mm512_set1_epi32(0x7fff), _mm512_set1_epi32(0x8000));
  return _mm512_mask_or_epi32(_mm512_add_epi32(bits, up), nan, bits, _mm512_set1_epi32(0x400000));
}

}  // namespace everyo::kernels
#endif
