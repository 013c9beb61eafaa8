#include "kernels/packed_matmul.h"

#include <algorithm>
#include <utility>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed_matmul.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// A tile of C: up to most_rows rows times two vectors, which with one row of B and one element of A fills the
// registers.
constexpr std::int64_t most_rows = has_avx512 ? 14 : 6;
constexpr std::int64_t row_panel = has_avx512 ? 16 : 8;  // stride of a packed column of A
constexpr std::int64_t block_rows = 8 * most_rows;
constexpr std::int64_t most_depth = 1024;
constexpr std::int64_t one_thread_work = 1'000'000;  // products; below, waking a thread costs more than it brings
template <class F>
constexpr auto tile_columns = static_cast<std::int64_t>(2 * hn::MaxLanes(WideTag<F>()));

// to[m][0..columns) = (from or 0) + sum over k of a(m, k) b[k]. A lies as rows (a[m * a_row + k]) or as columns of a
// panel (a[k * row_panel + m]); `from` and `to` have rows of `row` elements.
template <std::int64_t rows, bool a_as_rows, class F>
HWY_NOINLINE void tile(const F* HWY_RESTRICT a, std::int64_t a_row, const F* HWY_RESTRICT b, std::int64_t depth,
                       const F* from, F* to, std::int64_t row) {
  const WideTag<F> d;
  using V = hn::Vec<decltype(d)>;
  constexpr auto n = static_cast<std::int64_t>(hn::MaxLanes(d));
  V left_sum[rows], right_sum[rows];
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < rows; ++m) {
    left_sum[m] = from ? hn::LoadU(d, from + m * row) : hn::Zero(d);
    right_sum[m] = from ? hn::LoadU(d, from + m * row + n) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const V left = hn::Load(d, b + k * 2 * n), right = hn::Load(d, b + k * 2 * n + n);
    hwy::Prefetch(b + (k + 16) * 2 * n);
    hwy::Prefetch(b + (k + 16) * 2 * n + n);
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < rows; ++m) {
      const V x = hn::Set(d, a_as_rows ? a[m * a_row + k] : a[k * row_panel + m]);
      left_sum[m] = hn::MulAdd(x, left, left_sum[m]);
      right_sum[m] = hn::MulAdd(x, right, right_sum[m]);
    }
  }
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < rows; ++m) {
    hn::StoreU(left_sum[m], d, to + m * row);
    hn::StoreU(right_sum[m], d, to + m * row + n);
  }
}

// Tiles have even numbers of rows; only the last rows of C may be odd, and then the row too much is never stored.
template <bool a_as_rows, class F>
HWY_INLINE void tile_of(std::int64_t rows, const F* a, std::int64_t a_row, const F* b, std::int64_t depth,
                        const F* from, F* to, std::int64_t row) {
  [&]<std::size_t... i>(std::index_sequence<i...>) HWY_ATTR {
    constexpr void (*tiles[])(const F*, std::int64_t, const F*, std::int64_t, const F*, F*,
                              std::int64_t) = {&tile<2 * (static_cast<std::int64_t>(i) + 1), a_as_rows, F>...};
    tiles[(rows - 1) / 2](a, a_row, b, depth, from, to, row);
  }
  (std::make_index_sequence<most_rows / 2>());
}

// T: of A and B, and what a sum is rounded to; Out: of C, T or float.
template <class T, class Out = T>
class Product {
  using F = Wide<T>;
  static constexpr auto lanes_n = static_cast<std::int64_t>(hn::MaxLanes(WideTag<T>()));
  static constexpr std::int64_t columns_n = tile_columns<F>;

 public:
  Product(const MatmulProblem& problem, const T* a, const T* b, Out* c, const MatmulEpilogue<T>& epilogue)
      : p_(problem), a_(a), b_(b), c_(c), epilogue_(epilogue) {
    depth_ = round_up(ceil_div(p_.k, ceil_div(p_.k, most_depth)), lanes_n);
    column_panels_ = ceil_div(p_.n, columns_n);
    row_panels_ = ceil_div(p_.m, most_rows);
  }

  void run() {
    const Scratch<F> packed(column_panels_ * columns_n * round_up(p_.k, lanes_n));
    packed_b_ = packed.data();
    const std::int64_t depths = ceil_div(p_.k, depth_), panels = depths * column_panels_;
    const std::int64_t work = p_.m * p_.n * p_.k;
    const std::int64_t threads = work < one_thread_work ? 1 : max_threads();
    parallel_for(panels, ceil_div(panels, threads), [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t panel = first; panel < end; ++panel) {
        pack_b(panel / column_panels_ * depth_, panel % column_panels_);
      }
    });
    // Rows first; columns too where there are fewer blocks of rows than threads. The cut never enters a sum.
    std::int64_t row_cuts = ceil_div(row_panels_ * most_rows, block_rows);
    row_cuts = std::min(row_panels_, round_up(row_cuts, threads));
    const std::int64_t column_cuts = std::min(column_panels_, ceil_div(threads, row_cuts));
    parallel_for(row_cuts * column_cuts, threads == 1 ? row_cuts * column_cuts : 1,
                 [&](std::int64_t first, std::int64_t end) {
                   for (std::int64_t block = first; block < end; ++block) {
                     const std::int64_t r = block / column_cuts, c = block % column_cuts;
                     run_block(row_panels_ * r / row_cuts, row_panels_ * (r + 1) / row_cuts,
                               column_panels_ * c / column_cuts, column_panels_ * (c + 1) / column_cuts);
                   }
                 });
  }

 private:
  // First row of a panel: pairs of rows are spread evenly, so that no panel is much shorter than the others.
  [[nodiscard]] std::int64_t first_row(std::int64_t panel) const {
    return std::min(p_.m, ceil_div(p_.m, 2) * panel / row_panels_ * 2);
  }
  [[nodiscard]] F* b_panel(std::int64_t k, std::int64_t panel) const {
    const std::int64_t depth = std::min(depth_, round_up(p_.k - k, lanes_n));
    return packed_b_ + k * column_panels_ * columns_n + panel * depth * columns_n;
  }

  void pack_b(std::int64_t k, std::int64_t panel) {
    const std::int64_t depth = std::min(depth_, p_.k - k), n = panel * columns_n,
                       columns = std::min(columns_n, p_.n - n);
    F* to = b_panel(k, panel);
    if (p_.transpose_b)
      copy_transposed(b_ + n * p_.k + k, p_.k, columns, depth, to, columns_n, columns_n);
    else
      copy_rows(b_ + k * p_.n + n, p_.n, depth, columns, to, columns_n, columns_n);
  }

  // Rows of A for one block: as rows, or where A is stored transposed, as columns of panels.
  void pack_a(std::int64_t panel, std::int64_t end, std::int64_t k, std::int64_t depth, std::int64_t a_row, F* to) {
    const std::int64_t m = first_row(panel), rows = first_row(end) - m;
    if (!p_.transpose_a) {
      copy_rows(a_ + m * p_.k + k, p_.k, rows, depth, to, a_row, round_up(depth, lanes_n));
      std::fill_n(to + rows * a_row, depth, F{});  // the row too much of an odd last panel
      return;
    }
    for (std::int64_t i = panel; i < end; ++i) {
      // Whole vectors where they exist: the columns of the next panel do no harm.
      const std::int64_t first = first_row(i), columns = std::min(row_panel, p_.m - first);
      copy_rows(a_ + k * p_.m + first, p_.m, depth, columns, to + (i - panel) * depth * row_panel, row_panel,
                row_panel);
    }
  }

  void run_block(std::int64_t row_first, std::int64_t row_end, std::int64_t column_first, std::int64_t column_end) {
    const std::int64_t m = first_row(row_first), rows = first_row(row_end) - m;
    const std::int64_t a_row = depth_ + 16;  // not a power of two: the rows of a tile would share cache sets
    const std::int64_t a_size = p_.transpose_a ? (row_end - row_first) * row_panel * depth_ : (rows + 1) * a_row;
    const Scratch<F> packed(a_size);
    F* a = packed.data();
    const bool one_pass = depth_ >= p_.k;
    const std::int64_t sums_row = one_pass ? columns_n : (column_end - column_first) * columns_n;
    const Scratch<F> partial(sums_row * (one_pass ? most_rows : rows + 1));
    F* sums = partial.data();
    for (std::int64_t k = 0; k < p_.k; k += depth_) {
      const std::int64_t depth = std::min(depth_, p_.k - k);
      pack_a(row_first, row_end, k, depth, a_row, a);
      for (std::int64_t column = column_first; column < column_end; ++column) {
        const F* b = b_panel(k, column);
        for (std::int64_t panel = row_first; panel < row_end; ++panel) {
          const std::int64_t first = first_row(panel) - m, count = first_row(panel + 1) - m - first;
          F* to = one_pass ? sums : sums + first * sums_row + (column - column_first) * columns_n;
          const F* from = k == 0 ? nullptr : to;
          if (p_.transpose_a) {
            tile_of<false>(count, a + (panel - row_first) * depth * row_panel, 0, b, depth, from, to, sums_row);
          } else {
            tile_of<true>(count, a + first * a_row, a_row, b, depth, from, to, sums_row);
          }
          if (k + depth == p_.k) finish(to, sums_row, m + first, count, column * columns_n);
        }
      }
    }
  }

  void finish(const F* sums, std::int64_t sums_row, std::int64_t m, std::int64_t rows, std::int64_t n) {
    const WideTag<T> d;
    constexpr std::size_t lanes = hn::MaxLanes(WideTag<T>());
    const auto columns = static_cast<std::size_t>(std::min(columns_n, p_.n - n));
    const auto sum = [&](const F* from, T* to, std::size_t column, std::size_t count) HWY_ATTR {
      return finished<T>(hn::LoadU(d, from + column), to + column, count, p_.accumulate,
                         epilogue_.bias ? epilogue_.bias + n + column : nullptr, epilogue_.relu);
    };
    for (std::int64_t row = 0; row < rows; ++row, sums += sums_row) {
      Out* const to = c_ + (m + row) * p_.n + n;
      if constexpr (!std::is_same_v<T, Out>) {
        for (std::size_t v = 0; v < columns; v += lanes)
          store_first<Out>(round_to<T>(hn::LoadU(d, sums + v)), to + v, std::min(lanes, columns - v));
        continue;
      } else {
        if (columns == 2 * lanes) {
          store_two(sum(sums, to, 0, lanes), sum(sums, to, lanes, lanes), to);
          continue;
        }
        for (std::size_t v = 0; v < columns; v += lanes) {
          const std::size_t count = std::min(lanes, columns - v);
          store_first<T>(sum(sums, to, v, count), to + v, count);
        }
      }
    }
  }

  const MatmulProblem& p_;
  const T *a_, *b_;
  Out* c_;
  const MatmulEpilogue<T>& epilogue_;
  std::int64_t depth_, column_panels_, row_panels_;
  F* packed_b_ = nullptr;
};

void multiply_float(const MatmulProblem& p, const float* a, const float* b, float* c, const MatmulEpilogue<float>& e) {
  Product<float>(p, a, b, c, e).run();
}
void multiply_double(const MatmulProblem& p, const double* a, const double* b, double* c,
                     const MatmulEpilogue<double>& e) {
  Product<double>(p, a, b, c, e).run();
}
void multiply_float16_widened(const MatmulProblem& p, const Float16* a, const Float16* b, float* c) {
  Product<Float16, float>(p, a, b, c, {}).run();
}
void multiply_bfloat16_widened(const MatmulProblem& p, const BFloat16* a, const BFloat16* b, float* c) {
  Product<BFloat16, float>(p, a, b, c, {}).run();
}
void multiply_float16(const MatmulProblem& p, const Float16* a, const Float16* b, Float16* c,
                      const MatmulEpilogue<Float16>& e) {
  Product<Float16>(p, a, b, c, e).run();
}
void multiply_bfloat16(const MatmulProblem& p, const BFloat16* a, const BFloat16* b, BFloat16* c,
                       const MatmulEpilogue<BFloat16>& e) {
  Product<BFloat16>(p, a, b, c, e).run();
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {

HWY_EXPORT(multiply_float);
HWY_EXPORT(multiply_double);
HWY_EXPORT(multiply_float16);
HWY_EXPORT(multiply_bfloat16);
HWY_EXPORT(multiply_float16_widened);
HWY_EXPORT(multiply_bfloat16_widened);

template <class T>
void packed_matmul(const MatmulProblem& problem, const T* a, const T* b, T* c, const MatmulEpilogue<T>& epilogue) {
  use_isa();
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(multiply_float)(problem, a, b, c, epilogue);
  else if constexpr (std::is_same_v<T, double>)
    HWY_DYNAMIC_DISPATCH(multiply_double)(problem, a, b, c, epilogue);
  else if constexpr (std::is_same_v<T, Float16>)
    HWY_DYNAMIC_DISPATCH(multiply_float16)(problem, a, b, c, epilogue);
  else
    HWY_DYNAMIC_DISPATCH(multiply_bfloat16)(problem, a, b, c, epilogue);
}
template void packed_matmul(const MatmulProblem&, const float*, const float*, float*, const MatmulEpilogue<float>&);
template void packed_matmul(const MatmulProblem&, const double*, const double*, double*, const MatmulEpilogue<double>&);
template void packed_matmul(const MatmulProblem&, const Float16*, const Float16*, Float16*,
                            const MatmulEpilogue<Float16>&);
template void packed_matmul(const MatmulProblem&, const BFloat16*, const BFloat16*, BFloat16*,
                            const MatmulEpilogue<BFloat16>&);

void packed_matmul(const MatmulProblem& problem, const Float16* a, const Float16* b, float* c) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_float16_widened)(problem, a, b, c);
}
void packed_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(multiply_bfloat16_widened)(problem, a, b, c);
}

}  // namespace everyo::kernels
#endif
