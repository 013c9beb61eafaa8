#include "kernels/bfloat16_matmul.h"

#include "kernels/isa.h"

#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of _mm512_undefined_epi32(), which is so on purpose
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/parallel.h"
#include "kernels/scratch.h"

// The operands of VDPBF16PS are pairs: a lane of 32 bits holds two neighbours along K, the lower one first. Rows of A
// are such pairs as they lie; B is packed in panels of 32 columns, pair after pair; a transposed A in panels of rows.
// Written with the compiler's intrinsics, since Highway's targets end below BF16.
namespace everyo::kernels {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t lanes = 16, panel_columns = 2 * lanes;
constexpr std::int64_t most_rows = 14;        // by two vectors: with a row of B and an element of A, the registers
constexpr std::int64_t most_pairs = 1024;     // of a panel: it stays in the second-level cache
constexpr std::int64_t block_panels = 8;      // of rows that pass a panel of B together
constexpr std::int64_t alias = 2048;          // bytes between rows that would share a few sets of the first cache
constexpr std::int64_t one_thread = 1 << 20;  // products; below, waking a thread costs more than it brings

using Half = std::uint16_t;
using Pair = std::uint32_t;

// ---- packing
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_pairs_of_rows(const Half* from, std::int64_t row,
                                                                     std::int64_t depth, std::int64_t columns,
                                                                     Pair* to) {
  alignas(64) Half order[2 * panel_columns];
  for (Half i = 0; i < panel_columns; ++i) {
    order[2 * i] = i;
    order[2 * i + 1] = static_cast<Half>(panel_columns + i);
  }
  const __m512i left = _mm512_load_si512(order), right = _mm512_load_si512(order + panel_columns);
  const auto mask = static_cast<__mmask32>(columns >= panel_columns ? ~0u : (1u << columns) - 1);
  for (std::int64_t k = 0; k < depth; k += 2, from += 2 * row, to += panel_columns) {
    const __m512i first = _mm512_maskz_loadu_epi16(mask, from);
    const __m512i second = k + 1 < depth ? _mm512_maskz_loadu_epi16(mask, from + row) : _mm512_setzero_si512();
    _mm512_store_si512(to, _mm512_permutex2var_epi16(first, left, second));
    _mm512_store_si512(to + lanes, _mm512_permutex2var_epi16(first, right, second));
  }
}

// The same of up to 16 columns, in panels of 16.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_narrow(const Half* from, std::int64_t row, std::int64_t depth,
                                                              std::int64_t columns, Pair* to) {
  alignas(64) Half order[panel_columns];
  for (Half i = 0; i < lanes; ++i) {
    order[2 * i] = i;
    order[2 * i + 1] = static_cast<Half>(panel_columns + i);
  }
  const __m512i both = _mm512_load_si512(order);
  const auto mask = static_cast<__mmask16>(columns >= lanes ? 0xffffu : (1u << columns) - 1);
  for (std::int64_t k = 0; k < depth; k += 2, from += 2 * row, to += lanes) {
    const __m256i first = _mm256_maskz_loadu_epi16(mask, from);
    const __m256i second = k + 1 < depth ? _mm256_maskz_loadu_epi16(mask, from + row) : _mm256_setzero_si256();
    _mm512_store_si512(to,
                       _mm512_permutex2var_epi16(_mm512_castsi256_si512(first), both, _mm512_castsi256_si512(second)));
  }
}

// to[pair * panel_columns + r] = the pair of row r, r < 16; 16 pairs at a time, rows from `rows` on are zeros.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_columns_of_pairs(const Half* from, std::int64_t row,
                                                                        std::int64_t depth, std::int64_t rows,
                                                                        Pair* to) {
  for (std::int64_t k = 0; k < depth; k += 2 * lanes, to += lanes * panel_columns) {
    const std::int64_t rest = depth - k;
    const auto mask = static_cast<__mmask32>(rest >= 2 * lanes ? ~0u : (1u << rest) - 1);
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
    const std::int64_t pairs = std::min(lanes, ceil_div(rest, 2));
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
      if (i < pairs) _mm512_store_si512(to + i * panel_columns, r[i]);
  }
}

// ---- tiles
// to[m][0..columns) = (from or 0) + sum over pairs of a(m, k) b[k]. The pair k of row m lies at a[m * a_row + 2 k], or
// packed at a[2 (k * lanes + m)].
struct Tile {
  const Half* a;
  std::int64_t a_row;
  const Pair* b;
  std::int64_t pairs;
  const float* from;
  float* to;
  std::int64_t row;  // of from and to
};

template <std::size_t rows, std::size_t vectors, bool packed>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::noinline]] void run_tile(const Tile& t) {
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
  for (std::int64_t k = 0; k < t.pairs; ++k, a += packed ? 2 * lanes : 2, b += panel_columns) {
    __m512i right[vectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      right[v] = _mm512_load_si512(b + 16 * v);
      _mm_prefetch(b + 16 * panel_columns + 16 * v, _MM_HINT_T0);
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
void run_rows(const Tile& tile, std::int64_t rows) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    constexpr void (*tiles[])(const Tile&) = {&run_tile<i + 1, vectors, packed>...};
    tiles[rows - 1](tile);
  }
  (std::make_index_sequence<static_cast<std::size_t>(most_rows)>());
}

// ---- what happens to a sum on its way to C
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
// In the upper half of a lane, to nearest, ties to even; NaN quieted. Not VCVTNEPS2BF16, for which subnormal numbers
// are zeros.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i rounded(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
}
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 as_half(__m512 v) {
  return _mm512_castsi512_ps(_mm512_and_si512(rounded(v), _mm512_set1_epi32(-0x10000)));
}

struct Finish {
  const float* sums;
  std::int64_t sums_row, rows, columns;
  Half* c;
  std::int64_t c_row;
  bool accumulate, relu;
  const Half* bias;
};
// The last rounding is the store's.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 finished(const Finish& f, __m512 v,
                                                                                        __mmask16 mask, __m512 bias,
                                                                                        const Half* to) {
  if (f.accumulate) v = _mm512_add_ps(widened(_mm256_maskz_loadu_epi16(mask, to)), as_half(v));
  if (f.bias) v = _mm512_add_ps(as_half(v), bias);
  if (f.relu) v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps());
  return v;
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] void finish(const Finish& f) {
  const auto part = [](std::int64_t count) {
    return static_cast<__mmask16>(count >= lanes ? 0xffffu : (1u << std::max<std::int64_t>(count, 0)) - 1);
  };
  const __mmask16 left = part(f.columns), right = part(f.columns - lanes);
  const __mmask32 both = static_cast<__mmask32>(right) << 16 | left;
  alignas(64) Half order[panel_columns];
  for (Half i = 0; i < panel_columns; ++i) order[i] = static_cast<Half>(2 * i + 1);  // the upper halves
  const __m512i upper = _mm512_load_si512(order);
  const __m512 zero = _mm512_setzero_ps(), left_bias = f.bias ? widened(_mm256_maskz_loadu_epi16(left, f.bias)) : zero,
               right_bias = f.bias && right ? widened(_mm256_maskz_loadu_epi16(right, f.bias + lanes)) : zero;
  const float* sums = f.sums;
  Half* to = f.c;
  for (std::int64_t m = 0; m < f.rows; ++m, sums += f.sums_row, to += f.c_row) {
    const __m512 a = finished(f, _mm512_loadu_ps(sums), left, left_bias, to);
    const __m512 b = right ? finished(f, _mm512_loadu_ps(sums + lanes), right, right_bias, to + lanes) : zero;
    const __m512i row = _mm512_permutex2var_epi16(rounded(a), upper, rounded(b));
    if (both == ~__mmask32{0})
      _mm512_storeu_si512(to, row);
    else
      _mm512_mask_storeu_epi16(to, both, row);
  }
}

// ---- the product
class Product {
 public:
  Product(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
          const MatmulEpilogue<BFloat16>& epilogue)
      : p_(problem),
        a_(&a->bits),
        b_(&b->bits),
        c_(&c->bits),
        bias_(epilogue.bias ? &epilogue.bias->bits : nullptr),
        relu_(epilogue.relu) {
    const std::int64_t bytes = p_.k * static_cast<std::int64_t>(sizeof(Half));
    copies_a_ = !p_.transpose_a && (p_.k % 2 != 0 || bytes % alias == 0);
    const std::int64_t pairs = ceil_div(p_.k, 2);
    pairs_ = ceil_div(pairs, ceil_div(pairs, most_pairs));
    row_panels_ = ceil_div(p_.m, most_rows);
    column_panels_ = ceil_div(p_.n, panel_columns);
  }

  void run() const {
    const std::int64_t threads = p_.m * p_.n * p_.k < one_thread ? 1 : max_threads();
    const Cuts cut = cuts(threads);
    parallel_for(cut.rows * cut.columns, threads == 1 ? cut.rows * cut.columns : 1,
                 [&](std::int64_t first, std::int64_t end) {
                   for (std::int64_t block = first; block < end; ++block) {
                     const std::int64_t r = block / cut.columns, c = block % cut.columns;
                     run_block(row_panels_ * r / cut.rows, row_panels_ * (r + 1) / cut.rows,
                               column_panels_ * c / cut.columns, column_panels_ * (c + 1) / cut.columns);
                   }
                 });
  }

 private:
  struct Cuts {
    std::int64_t rows, columns;
  };
  // Each block packs what it needs by itself, so a cut along rows packs B once more, and one along columns A. The
  // cheapest way to give every thread a block; it never enters a sum.
  [[nodiscard]] Cuts cuts(std::int64_t threads) const {
    const std::int64_t cost_of_a = p_.transpose_a ? 8 : copies_a_ ? 4 : 1, cost_of_b = p_.transpose_b ? 8 : 4;
    Cuts best{1, 1};
    std::int64_t least = 0;
    for (std::int64_t rows = 1; rows <= std::min(threads, row_panels_); ++rows) {
      const std::int64_t columns = std::min(column_panels_, ceil_div(threads, rows));
      const std::int64_t m = std::min(p_.m, ceil_div(row_panels_, rows) * most_rows),
                         n = std::min(p_.n, ceil_div(column_panels_, columns) * panel_columns);
      const std::int64_t cost = (m * n + m * cost_of_a + n * cost_of_b) * ceil_div(rows * columns, threads);
      if (least == 0 || cost < least) {
        least = cost;
        best = {rows, columns};
      }
    }
    return best;
  }

  // Rows are spread evenly over the panels.
  [[nodiscard]] std::int64_t first_row(std::int64_t panel) const { return p_.m * panel / row_panels_; }

  void pack_b(std::int64_t k, std::int64_t depth, std::int64_t panel, Pair* to) const {
    const std::int64_t n = panel * panel_columns, columns = std::min(panel_columns, p_.n - n);
    if (!p_.transpose_b) return pack_pairs_of_rows(b_ + k * p_.n + n, p_.n, depth, columns, to);
    pack_columns_of_pairs(b_ + n * p_.k + k, p_.k, depth, columns, to);
    if (columns > lanes) pack_columns_of_pairs(b_ + (n + lanes) * p_.k + k, p_.k, depth, columns - lanes, to + lanes);
  }

  void run_block(std::int64_t row_first, std::int64_t row_end, std::int64_t column_first,
                 std::int64_t column_end) const {
    const std::int64_t columns = column_end - column_first, all_pairs = ceil_div(p_.k, 2);
    const Scratch<Pair> packed_b(columns * panel_columns * all_pairs);
    for (std::int64_t k = 0; k < all_pairs; k += pairs_) {
      const std::int64_t pairs = std::min(pairs_, all_pairs - k);
      for (std::int64_t column = column_first; column < column_end; ++column) {
        pack_b(2 * k, std::min(2 * pairs, p_.k - 2 * k), column,
               packed_b.data() + (k * columns + (column - column_first) * pairs) * panel_columns);
      }
    }
    const bool one_pass = pairs_ == all_pairs;
    const std::int64_t panels = std::min(row_end - row_first, block_panels);
    const std::int64_t sums_row = one_pass ? panel_columns : columns * panel_columns;
    const Scratch<float> partial(sums_row * most_rows * (one_pass ? 1 : panels));
    const std::int64_t a_row = 2 * pairs_ + 2 * lanes;  // of a copy; no power of two
    const Scratch<Half> packed_a(p_.transpose_a ? panels * pairs_ * 2 * lanes
                                                : (copies_a_ ? panels * most_rows * a_row : 0));
    for (std::int64_t panel = row_first; panel < row_end; panel += block_panels) {
      const std::int64_t end = std::min(row_end, panel + block_panels);
      for (std::int64_t k = 0; k < all_pairs; k += pairs_) {
        const std::int64_t pairs = std::min(pairs_, all_pairs - k);
        pack_a(panel, end, 2 * k, std::min(2 * pairs, p_.k - 2 * k), a_row, packed_a.data());
        for (std::int64_t column = column_first; column < column_end; ++column) {
          Tile tile{.a = nullptr,
                    .a_row = copies_a_ ? a_row : p_.k,
                    .b = packed_b.data() + (k * columns + (column - column_first) * pairs) * panel_columns,
                    .pairs = pairs,
                    .from = nullptr,
                    .to = nullptr,
                    .row = sums_row};
          for (std::int64_t row = panel; row < end; ++row) {
            const std::int64_t m = first_row(row), rows = first_row(row + 1) - m, at = m - first_row(panel);
            tile.to =
                one_pass ? partial.data() : partial.data() + at * sums_row + (column - column_first) * panel_columns;
            tile.from = k == 0 ? nullptr : tile.to;
            tile.a = p_.transpose_a ? packed_a.data() + (row - panel) * pairs * 2 * lanes
                     : copies_a_    ? packed_a.data() + at * a_row
                                    : a_ + m * p_.k + 2 * k;
            run(tile, rows, p_.n - column * panel_columns);
            if (k + pairs == all_pairs) finish_tile(tile, m, rows, column * panel_columns);
          }
        }
      }
    }
  }

  void pack_a(std::int64_t panel, std::int64_t end, std::int64_t k, std::int64_t depth, std::int64_t a_row,
              Half* to) const {
    if (p_.transpose_a) {
      const std::int64_t pairs = ceil_div(depth, 2);
      for (std::int64_t row = panel; row < end; ++row, to += pairs * 2 * lanes) {
        const std::int64_t m = first_row(row);
        pack_narrow(a_ + k * p_.m + m, p_.m, depth, first_row(row + 1) - m, reinterpret_cast<Pair*>(to));
      }
    } else if (copies_a_) {
      for (std::int64_t m = first_row(panel); m < first_row(end); ++m, to += a_row) {
        std::memcpy(to, a_ + m * p_.k + k, static_cast<std::size_t>(depth) * sizeof(Half));
        if (depth % 2 != 0) to[depth] = 0;
      }
    }
  }

  void run(const Tile& tile, std::int64_t rows, std::int64_t columns) const {
    if (p_.transpose_a)
      columns > lanes ? run_rows<2, true>(tile, rows) : run_rows<1, true>(tile, rows);
    else
      columns > lanes ? run_rows<2, false>(tile, rows) : run_rows<1, false>(tile, rows);
  }

  void finish_tile(const Tile& tile, std::int64_t m, std::int64_t rows, std::int64_t n) const {
    finish({.sums = tile.to,
            .sums_row = tile.row,
            .rows = rows,
            .columns = std::min(panel_columns, p_.n - n),
            .c = c_ + m * p_.n + n,
            .c_row = p_.n,
            .accumulate = p_.accumulate,
            .relu = relu_,
            .bias = bias_ ? bias_ + n : nullptr});
  }

  MatmulProblem p_;
  const Half *a_, *b_;
  Half* c_;
  const Half* bias_;
  bool relu_, copies_a_ = false;
  std::int64_t pairs_ = 0, row_panels_ = 0, column_panels_ = 0;
};

}  // namespace

bool bfloat16_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
                     const MatmulEpilogue<BFloat16>& epilogue) {
  if (used_isa() < Isa::avx512_bf16) return false;
  Product(problem, a, b, c, epilogue).run();
  return true;
}

}  // namespace everyo::kernels
#else
namespace everyo::kernels {
bool bfloat16_matmul(const MatmulProblem&, const BFloat16*, const BFloat16*, BFloat16*,
                     const MatmulEpilogue<BFloat16>&) {
  return false;
}
}  // namespace everyo::kernels
#endif
