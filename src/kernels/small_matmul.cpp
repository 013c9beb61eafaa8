#include "kernels/small_matmul.h"

#include <algorithm>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/small_matmul.cpp"
#include <hwy/foreach_target.h>

#include "kernels/epilogue-inl.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

using Lanes = WideTag<float>;
constexpr std::size_t width = hn::MaxLanes(Lanes());
// Accumulators: rows times two vectors, within the registers (32 with AVX-512, else 16).
constexpr std::size_t most_rows = has_avx512 ? 8 : 6;

constexpr std::int64_t row_unit = 24;            // a multiple of most_rows on every target
constexpr std::int64_t block_work = 512 * 1024;  // products a thread gets at least: half a dozen wake-ups' time

// One tile's view of the operands: a[m * row + k * column], b[k * b_row + n].
struct Tile {
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row, k;
  float* c;
  std::int64_t c_row;
  std::size_t columns;  // of this tile
  const float* bias;
  bool relu, accumulate;
};

template <std::size_t rows, std::size_t vectors>
HWY_NOINLINE void run_tile(const Tile& t) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const std::size_t last = t.columns - (vectors - 1) * width;  // columns of the last vector
  V sum[rows][vectors];
#pragma GCC unroll 8
  for (std::size_t m = 0; m < rows; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) sum[m][v] = hn::Zero(d);
  }
  const float* a = t.a;
  const float* b = t.b;
  const auto mask = hn::FirstN(d, last);
  for (std::int64_t k = 0; k < t.k; ++k, a += t.a_column, b += t.b_row) {
    V right[vectors];
    if constexpr (vectors == 2) right[0] = hn::LoadU(d, b);
    const float* tail = b + (vectors - 1) * width;
    if constexpr (can_mask<float>)
      right[vectors - 1] = hn::MaskedLoad(mask, d, tail);
    else
      right[vectors - 1] = hn::LoadU(d, tail);  // B was padded
#pragma GCC unroll 8
    for (std::size_t m = 0; m < rows; ++m) {
      const V left = hn::Set(d, a[static_cast<std::int64_t>(m) * t.a_row]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) sum[m][v] = hn::MulAdd(left, right[v], sum[m][v]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t m = 0; m < rows; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t count = v + 1 == vectors ? last : width;
      float* to = t.c + static_cast<std::int64_t>(m) * t.c_row + v * width;
      store_product<float>(sum[m][v], to, count, t.accumulate, t.bias ? t.bias + v * width : nullptr, t.relu);
    }
  }
}

template <std::size_t vectors>
HWY_INLINE void run_rows(const Tile& tile, std::int64_t rows) {
  static_assert(most_rows == 6 || most_rows == 8);
  switch (rows) {
    case 1: return run_tile<1, vectors>(tile);
    case 2: return run_tile<2, vectors>(tile);
    case 3: return run_tile<3, vectors>(tile);
    case 4: return run_tile<4, vectors>(tile);
    case 5: return run_tile<5, vectors>(tile);
    case 6: return run_tile<6, vectors>(tile);
    case 7: return run_tile<std::min<std::size_t>(7, most_rows), vectors>(tile);
    default: return run_tile<most_rows, vectors>(tile);
  }
}

// B [K, N] with rows padded to whole vectors: transposed, of halves, or where a tail cannot be loaded in place.
template <class T>
void pad_right(const MatmulProblem& p, const T* b, std::int64_t row, float* padded) {
  if (p.transpose_b)
    copy_transposed(b, p.k, p.n, p.k, padded, row, row);
  else
    copy_rows(b, p.n, p.k, p.n, padded, row, row);
}

void multiply_from(const MatmulProblem& p, const float* a, const float* b, std::int64_t b_row, float* c,
                   const MatmulEpilogue<float>& epilogue) {
  constexpr auto lanes_per_vector = static_cast<std::int64_t>(width);
  // B stays in the caches while all rows of A pass; blocks of rows may go to several threads.
  const std::int64_t block = (block_work / (p.n * p.k) / row_unit + 1) * row_unit;
  parallel_for(p.m, block, [&](std::int64_t first, std::int64_t end) {
    Tile tile{.a = a,
              .a_row = p.transpose_a ? 1 : p.k,
              .a_column = p.transpose_a ? p.m : 1,
              .b = b,
              .b_row = b_row,
              .k = p.k,
              .c = c,
              .c_row = p.n,
              .columns = 0,
              .bias = nullptr,
              .relu = epilogue.relu,
              .accumulate = p.accumulate};
    for (std::int64_t n = 0; n < p.n; n += 2 * lanes_per_vector) {
      tile.columns = static_cast<std::size_t>(std::min(p.n - n, 2 * lanes_per_vector));
      tile.b = b + n;
      tile.bias = epilogue.bias ? epilogue.bias + n : nullptr;
      for (std::int64_t m = first; m < end;) {
        const std::int64_t rows = std::min<std::int64_t>(end - m, most_rows);
        tile.a = a + m * tile.a_row;
        tile.c = c + m * p.n + n;
        if (tile.columns > width)
          run_rows<2>(tile, rows);
        else
          run_rows<1>(tile, rows);
        m += rows;
      }
    }
  });
}

template <class T, class Out>
void multiply(const MatmulProblem& p, const T* a, const T* b, Out* c, const MatmulEpilogue<T>& epilogue) {
  constexpr auto lanes_per_vector = static_cast<std::int64_t>(width);
  const std::int64_t row = (p.n + lanes_per_vector - 1) / lanes_per_vector * lanes_per_vector;
  if constexpr (std::is_same_v<T, float>) {
    if (!p.transpose_b && (can_mask<float> || p.n == row)) return multiply_from(p, a, b, p.n, c, epilogue);
    const Scratch<float> padded(p.k * row);
    pad_right(p, b, row, padded.data());
    multiply_from(p, a, padded.data(), row, c, epilogue);
  } else {
    // The sums are rounded behind the product: a tile of its own for each type costs the compiler minutes.
    const std::int64_t elements = p.m * p.n;
    const Scratch<float> wide(p.k * row + p.m * p.k + elements);
    float *const wide_a = wide.data() + p.k * row, *const sums = wide_a + p.m * p.k;
    pad_right(p, b, row, wide.data());
    copy_elements(a, wide_a, static_cast<std::size_t>(p.m * p.k));
    MatmulProblem plain = p;
    plain.accumulate = false;
    multiply_from(plain, wide_a, wide.data(), row, sums, {});
    const std::int64_t line = epilogue.bias ? p.n : elements;
    for (std::int64_t i = 0; i < elements; i += line) {
      for (std::int64_t n = 0; n < line; n += lanes_per_vector) {
        const auto count = static_cast<std::size_t>(std::min(line - n, lanes_per_vector));
        const auto sum = load_first(sums + i + n, count);
        if constexpr (std::is_same_v<T, Out>)
          store_product<T>(sum, c + i + n, count, p.accumulate, epilogue.bias ? epilogue.bias + n : nullptr,
                           epilogue.relu);
        else
          store_first<Out>(round_to<T>(sum), c + i + n, count);
      }
    }
  }
}
void multiply_float(const MatmulProblem& p, const float* a, const float* b, float* c, const MatmulEpilogue<float>& e) {
  multiply(p, a, b, c, e);
}
void multiply_float16_widened(const MatmulProblem& p, const Float16* a, const Float16* b, float* c) {
  multiply(p, a, b, c, MatmulEpilogue<Float16>{});
}
void multiply_bfloat16_widened(const MatmulProblem& p, const BFloat16* a, const BFloat16* b, float* c) {
  multiply(p, a, b, c, MatmulEpilogue<BFloat16>{});
}
void multiply_float16(const MatmulProblem& p, const Float16* a, const Float16* b, Float16* c,
                      const MatmulEpilogue<Float16>& e) {
  multiply(p, a, b, c, e);
}
void multiply_bfloat16(const MatmulProblem& p, const BFloat16* a, const BFloat16* b, BFloat16* c,
                       const MatmulEpilogue<BFloat16>& e) {
  multiply(p, a, b, c, e);
}

template <class T>
void finish_each(T* x, std::int64_t count, const T* bias, bool relu) {
  const auto whole = static_cast<std::int64_t>(width);
  for (std::int64_t i = 0; i < count; i += whole) {
    const auto part = static_cast<std::size_t>(std::min(whole, count - i));
    store_product<T>(load_first(x + i, part), x + i, part, false, bias ? bias + i : nullptr, relu);
  }
}
void finish_float16(Float16* x, std::int64_t count, const Float16* bias, bool relu) {
  finish_each(x, count, bias, relu);
}
void finish_bfloat16(BFloat16* x, std::int64_t count, const BFloat16* bias, bool relu) {
  finish_each(x, count, bias, relu);
}
void relu_each(float* x, std::int64_t count) { finish_each<float>(x, count, nullptr, true); }

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {

HWY_EXPORT(multiply_float);
HWY_EXPORT(multiply_float16);
HWY_EXPORT(multiply_bfloat16);
HWY_EXPORT(multiply_float16_widened);
HWY_EXPORT(multiply_bfloat16_widened);
HWY_EXPORT(finish_float16);
HWY_EXPORT(finish_bfloat16);
HWY_EXPORT(relu_each);

void small_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                  const MatmulEpilogue<float>& epilogue) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_float)(problem, a, b, c, epilogue);
}
void small_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, Float16* c,
                  const MatmulEpilogue<Float16>& epilogue) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_float16)(problem, a, b, c, epilogue);
}
void small_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
                  const MatmulEpilogue<BFloat16>& epilogue) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_bfloat16)(problem, a, b, c, epilogue);
}

void small_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, float* c) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_float16_widened)(problem, a, b, c);
}
void small_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_bfloat16_widened)(problem, a, b, c);
}

void finish_in_place(Float16* x, std::int64_t count, const Float16* bias, bool relu) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(finish_float16)(x, count, bias, relu);
}
void finish_in_place(BFloat16* x, std::int64_t count, const BFloat16* bias, bool relu) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(finish_bfloat16)(x, count, bias, relu);
}
void relu_in_place(float* x, std::int64_t count) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(relu_each)(x, count);
}

}  // namespace everyo::kernels
#endif
