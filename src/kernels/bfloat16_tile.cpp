#include "kernels/bfloat16_tile.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/bfloat16_vector.h"

// With the compiler's intrinsics, since Highway's targets end below BF16. A function for other instructions than its
// file's lies in the anonymous namespace: declared elsewhere without them, it would be another one for g++.
namespace everyo::kernels {
namespace {

// ---- packing
[[gnu::target("avx512f,avx512bw,avx512vl")]] void interleave_rows(const Half* from, std::int64_t row,
                                                                  std::int64_t depth, std::int64_t columns, Pair* to) {
  alignas(64) Half order[2 * pair_columns];
  for (Half i = 0; i < pair_columns; ++i) {
    order[2 * i] = i;
    order[2 * i + 1] = static_cast<Half>(pair_columns + i);
  }
  const __m512i left = _mm512_load_si512(order), right = _mm512_load_si512(order + pair_columns);
  const auto mask = static_cast<__mmask32>(columns >= pair_columns ? ~0u : (1u << columns) - 1);
  for (std::int64_t k = 0; k < depth; k += 2, from += 2 * row, to += pair_columns) {
    const __m512i first = _mm512_maskz_loadu_epi16(mask, from);
    const __m512i second = k + 1 < depth ? _mm512_maskz_loadu_epi16(mask, from + row) : _mm512_setzero_si512();
    _mm512_store_si512(to, _mm512_permutex2var_epi16(first, left, second));
    _mm512_store_si512(to + pair_lanes, _mm512_permutex2var_epi16(first, right, second));
  }
}

// The same of up to 16 columns, in panels of 16.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void interleave_narrow(const Half* from, std::int64_t row,
                                                                    std::int64_t depth, std::int64_t columns,
                                                                    Pair* to) {
  alignas(64) Half order[pair_columns];
  for (Half i = 0; i < pair_lanes; ++i) {
    order[2 * i] = i;
    order[2 * i + 1] = static_cast<Half>(pair_columns + i);
  }
  const __m512i both = _mm512_load_si512(order);
  const __mmask16 mask = first_lanes(columns);
  for (std::int64_t k = 0; k < depth; k += 2, from += 2 * row, to += pair_lanes) {
    const __m256i first = _mm256_maskz_loadu_epi16(mask, from);
    const __m256i second = k + 1 < depth ? _mm256_maskz_loadu_epi16(mask, from + row) : _mm256_setzero_si256();
    _mm512_store_si512(to,
                       _mm512_permutex2var_epi16(_mm512_castsi256_si512(first), both, _mm512_castsi256_si512(second)));
  }
}

// to[pair * pair_columns + r] = the pair of row r, r < 16; 16 pairs at a time, rows from `rows` on are zeros.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void transpose_pairs(const Half* from, std::int64_t row,
                                                                  std::int64_t depth, std::int64_t rows, Pair* to) {
  for (std::int64_t k = 0; k < depth; k += 2 * pair_lanes, to += pair_lanes * pair_columns) {
    const std::int64_t rest = depth - k;
    const auto mask = static_cast<__mmask32>(rest >= 2 * pair_lanes ? ~0u : (1u << rest) - 1);
    __m512i r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * row + k) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // 4 x 4 within each block of 128 bits
      const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
      const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
      t[i] = _mm512_unpacklo_epi64(a, c);
      t[i + 1] = _mm512_unpackhi_epi64(a, c);
      t[i + 2] = _mm512_unpacklo_epi64(b, d);
      t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    const std::int64_t pairs = std::min(pair_lanes, (rest + 1) / 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // then the blocks
      const __m512i even01 = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
      const __m512i odd01 = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
      const __m512i even23 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
      const __m512i odd23 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
      r[i] = _mm512_shuffle_i32x4(even01, even23, 0x88);
      r[4 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
      r[8 + i] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
      r[12 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (i < pairs) _mm512_store_si512(to + i * pair_columns, r[i]);
  }
}

// ---- tiles

template <std::size_t rows, std::size_t vectors, bool packed>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::noinline]] void run_tile(const PairTile& t) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 16
  for (std::size_t m = 0; m < rows; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v)
      sum[m][v] =
          t.from ? _mm512_loadu_ps(t.from + static_cast<std::int64_t>(m) * t.row + 16 * v) : _mm512_setzero_ps();
  }
  const Half* a = t.a;
  const Pair* b = t.b;
  const std::int64_t a_row = t.a_row;
  for (std::int64_t k = 0; k < t.pairs; ++k, a += packed ? 2 * pair_lanes : 2, b += pair_columns) {
    __m512i right[vectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      right[v] = _mm512_load_si512(b + 16 * v);
      _mm_prefetch(b + 16 * pair_columns + 16 * v, _MM_HINT_T0);
    }
#pragma GCC unroll 16
    for (std::size_t m = 0; m < rows; ++m) {
      int pair;
      std::memcpy(&pair, a + (packed ? 2 * static_cast<std::int64_t>(m) : static_cast<std::int64_t>(m) * a_row),
                  sizeof pair);
      const __m512i left = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v)
        sum[m][v] = _mm512_dpbf16_ps(sum[m][v], reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right[v]));
    }
  }
#pragma GCC unroll 16
  for (std::size_t m = 0; m < rows; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v)
      _mm512_storeu_ps(t.to + static_cast<std::int64_t>(m) * t.row + 16 * v, sum[m][v]);
  }
}

template <std::size_t vectors, bool packed>
void run_rows(const PairTile& tile, std::int64_t rows) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    constexpr void (*tiles[])(const PairTile&) = {&run_tile<i + 1, vectors, packed>...};
    tiles[rows - 1](tile);
  }
  (std::make_index_sequence<static_cast<std::size_t>(most_pair_rows)>());
}

// ---- what happens to a sum on its way to C
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 as_half(__m512 v) {
  return _mm512_castsi512_ps(_mm512_and_si512(float_to_upper_bfloat16(v), _mm512_set1_epi32(-0x10000)));
}

// The last rounding is the store's.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 finished(const PairFinish& f, __m512 v,
                                                                                        __mmask16 mask, __m512 bias,
                                                                                        const Half* to) {
  if (f.accumulate) v = _mm512_add_ps(widened(_mm256_maskz_loadu_epi16(mask, to)), as_half(v));
  if (f.bias) v = _mm512_add_ps(as_half(v), bias);
  if (f.relu) v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps());
  return v;
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] void finish_rows(const PairFinish& f) {
  const __mmask16 left = first_lanes(f.columns), right = first_lanes(f.columns - pair_lanes);
  const __mmask32 both = static_cast<__mmask32>(right) << 16 | left;
  alignas(64) Half order[pair_columns];
  for (Half i = 0; i < pair_columns; ++i) order[i] = static_cast<Half>(2 * i + 1);  // the upper halves
  if (f.wide != nullptr) {
    for (std::int64_t m = 0; m < f.rows; ++m) {
      _mm512_mask_storeu_ps(f.wide + m * f.c_row, left, as_half(_mm512_loadu_ps(f.sums + m * f.sums_row)));
      if (right)
        _mm512_mask_storeu_ps(f.wide + m * f.c_row + pair_lanes, right,
                              as_half(_mm512_loadu_ps(f.sums + m * f.sums_row + pair_lanes)));
    }
    return;
  }
  const __m512i upper = _mm512_load_si512(order);
  const __m512 zero = _mm512_setzero_ps(), left_bias = f.bias ? widened(_mm256_maskz_loadu_epi16(left, f.bias)) : zero,
               right_bias = f.bias && right ? widened(_mm256_maskz_loadu_epi16(right, f.bias + pair_lanes)) : zero;
  const float* sums = f.sums;
  Half* to = f.c;
  for (std::int64_t m = 0; m < f.rows; ++m, sums += f.sums_row, to += f.c_row) {
    const __m512 a = finished(f, _mm512_loadu_ps(sums), left, left_bias, to);
    const __m512 b = right ? finished(f, _mm512_loadu_ps(sums + pair_lanes), right, right_bias, to + pair_lanes) : zero;
    const __m512i row = _mm512_permutex2var_epi16(float_to_upper_bfloat16(a), upper, float_to_upper_bfloat16(b));
    if (both == ~__mmask32{0})
      _mm512_storeu_si512(to, row);
    else
      _mm512_mask_storeu_epi16(to, both, row);
  }
}

}  // namespace

void pack_pairs_of_rows(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t columns, Pair* to) {
  interleave_rows(from, row, depth, columns, to);
}
void pack_narrow(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t columns, Pair* to) {
  interleave_narrow(from, row, depth, columns, to);
}
void pack_columns_of_pairs(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t rows, Pair* to) {
  transpose_pairs(from, row, depth, rows, to);
}
void run_pair_tile(const PairTile& tile, std::int64_t rows, bool narrow, bool packed) {
  if (packed)
    narrow ? run_rows<1, true>(tile, rows) : run_rows<2, true>(tile, rows);
  else
    narrow ? run_rows<1, false>(tile, rows) : run_rows<2, false>(tile, rows);
}
void finish_pairs(const PairFinish& f) { finish_rows(f); }

}  // namespace everyo::kernels
#endif
