#include "kernels/bfloat16_matmul.h"

#include "kernels/isa.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>

#include "kernels/bfloat16_tile.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t most_pairs = 1024;     // of a panel: it stays in the second-level cache
constexpr std::int64_t block_panels = 8;      // of rows that pass a panel of B together
constexpr std::int64_t alias = 2048;          // bytes between rows that would share a few sets of the first cache
constexpr std::int64_t one_thread = 1 << 20;  // products; below, waking a thread costs more than it brings

class Product {
 public:
  Product(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c, float* wide,
          const MatmulEpilogue<BFloat16>& epilogue)
      : p_(problem),
        a_(&a->bits),
        b_(&b->bits),
        c_(c ? &c->bits : nullptr),
        wide_(wide),
        bias_(epilogue.bias ? &epilogue.bias->bits : nullptr),
        relu_(epilogue.relu) {
    const std::int64_t bytes = p_.k * static_cast<std::int64_t>(sizeof(Half));
    copies_a_ = !p_.transpose_a && (p_.k % 2 != 0 || bytes % alias == 0);
    const std::int64_t pairs = ceil_div(p_.k, 2);
    pairs_ = ceil_div(pairs, ceil_div(pairs, most_pairs));
    row_panels_ = ceil_div(p_.m, most_pair_rows);
    column_panels_ = ceil_div(p_.n, pair_columns);
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
      const std::int64_t m = std::min(p_.m, ceil_div(row_panels_, rows) * most_pair_rows),
                         n = std::min(p_.n, ceil_div(column_panels_, columns) * pair_columns);
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
    const std::int64_t n = panel * pair_columns, columns = std::min(pair_columns, p_.n - n);
    if (!p_.transpose_b) return pack_pairs_of_rows(b_ + k * p_.n + n, p_.n, depth, columns, to);
    pack_columns_of_pairs(b_ + n * p_.k + k, p_.k, depth, columns, to);
    if (columns > pair_lanes)
      pack_columns_of_pairs(b_ + (n + pair_lanes) * p_.k + k, p_.k, depth, columns - pair_lanes, to + pair_lanes);
  }

  void run_block(std::int64_t row_first, std::int64_t row_end, std::int64_t column_first,
                 std::int64_t column_end) const {
    const std::int64_t columns = column_end - column_first, all_pairs = ceil_div(p_.k, 2);
    const Scratch<Pair> packed_b(columns * pair_columns * all_pairs);
    for (std::int64_t k = 0; k < all_pairs; k += pairs_) {
      const std::int64_t pairs = std::min(pairs_, all_pairs - k);
      for (std::int64_t column = column_first; column < column_end; ++column) {
        pack_b(2 * k, std::min(2 * pairs, p_.k - 2 * k), column,
               packed_b.data() + (k * columns + (column - column_first) * pairs) * pair_columns);
      }
    }
    const bool one_pass = pairs_ == all_pairs;
    const std::int64_t panels = std::min(row_end - row_first, block_panels);
    const std::int64_t sums_row = one_pass ? pair_columns : columns * pair_columns;
    const Scratch<float> partial(sums_row * most_pair_rows * (one_pass ? 1 : panels));
    const std::int64_t a_row = 2 * pairs_ + 2 * pair_lanes;  // of a copy; no power of two
    const Scratch<Half> packed_a(p_.transpose_a ? panels * pairs_ * 2 * pair_lanes
                                                : (copies_a_ ? panels * most_pair_rows * a_row : 0));
    for (std::int64_t panel = row_first; panel < row_end; panel += block_panels) {
      const std::int64_t end = std::min(row_end, panel + block_panels);
      for (std::int64_t k = 0; k < all_pairs; k += pairs_) {
        const std::int64_t pairs = std::min(pairs_, all_pairs - k);
        pack_a(panel, end, 2 * k, std::min(2 * pairs, p_.k - 2 * k), a_row, packed_a.data());
        for (std::int64_t column = column_first; column < column_end; ++column) {
          PairTile tile{.a = nullptr,
                        .a_row = copies_a_ ? a_row : p_.k,
                        .b = packed_b.data() + (k * columns + (column - column_first) * pairs) * pair_columns,
                        .pairs = pairs,
                        .from = nullptr,
                        .to = nullptr,
                        .row = sums_row};
          for (std::int64_t row = panel; row < end; ++row) {
            const std::int64_t m = first_row(row), rows = first_row(row + 1) - m, at = m - first_row(panel);
            tile.to =
                one_pass ? partial.data() : partial.data() + at * sums_row + (column - column_first) * pair_columns;
            tile.from = k == 0 ? nullptr : tile.to;
            tile.a = p_.transpose_a ? packed_a.data() + (row - panel) * pairs * 2 * pair_lanes
                     : copies_a_    ? packed_a.data() + at * a_row
                                    : a_ + m * p_.k + 2 * k;
            run_pair_tile(tile, rows, p_.n - column * pair_columns <= pair_lanes, p_.transpose_a);
            if (k + pairs == all_pairs) finish_tile(tile, m, rows, column * pair_columns);
          }
        }
      }
    }
  }

  void pack_a(std::int64_t panel, std::int64_t end, std::int64_t k, std::int64_t depth, std::int64_t a_row,
              Half* to) const {
    if (p_.transpose_a) {
      const std::int64_t pairs = ceil_div(depth, 2);
      for (std::int64_t row = panel; row < end; ++row, to += pairs * 2 * pair_lanes) {
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

  void finish_tile(const PairTile& tile, std::int64_t m, std::int64_t rows, std::int64_t n) const {
    finish_pairs({.sums = tile.to,
                  .sums_row = tile.row,
                  .rows = rows,
                  .columns = std::min(pair_columns, p_.n - n),
                  .c = c_ ? c_ + m * p_.n + n : nullptr,
                  .wide = wide_ ? wide_ + m * p_.n + n : nullptr,
                  .c_row = p_.n,
                  .accumulate = p_.accumulate,
                  .relu = relu_,
                  .bias = bias_ ? bias_ + n : nullptr});
  }

  MatmulProblem p_;
  const Half *a_, *b_;
  Half* c_;
  float* wide_;
  const Half* bias_;
  bool relu_, copies_a_ = false;
  std::int64_t pairs_ = 0, row_panels_ = 0, column_panels_ = 0;
};

}  // namespace

bool bfloat16_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, BFloat16* c,
                     const MatmulEpilogue<BFloat16>& epilogue) {
  if (used_isa() < Isa::avx512_bf16) return false;
  Product(problem, a, b, c, nullptr, epilogue).run();
  return true;
}
bool bfloat16_matmul(const MatmulProblem& problem, const BFloat16* a, const BFloat16* b, float* c) {
  if (used_isa() < Isa::avx512_bf16) return false;
  Product(problem, a, b, nullptr, c, {}).run();
  return true;
}

}  // namespace everyo::kernels
#else
namespace everyo::kernels {
bool bfloat16_matmul(const MatmulProblem&, const BFloat16*, const BFloat16*, BFloat16*,
                     const MatmulEpilogue<BFloat16>&) {
  return false;
}
bool bfloat16_matmul(const MatmulProblem&, const BFloat16*, const BFloat16*, float*) { return false; }
}  // namespace everyo::kernels
#endif
