#pragma once
#include <cstdint>

// The parts of bfloat16_matmul.cpp that are written in AVX512-BF16's instructions; call them where used_isa() has it.
// The operands of VDPBF16PS are pairs: a lane of 32 bits holds two neighbours along K, the lower one first. Rows of A
// are such pairs as they lie; B is packed in panels of 32 columns, pair after pair; a transposed A in panels of rows.
#if defined(__x86_64__)
namespace everyo::kernels {

using Half = std::uint16_t;
using Pair = std::uint32_t;
inline constexpr std::int64_t pair_lanes = 16, pair_columns = 2 * pair_lanes;
/// By two vectors: with a row of B and an element of A, the registers.
inline constexpr std::int64_t most_pair_rows = 14;

/// Packs the pairs of rows k and k + 1, up to 32 columns: to[k / 2 * pair_columns + column]. An odd last row is paired
/// with zeros; columns up to 32 are zeros.
void pack_pairs_of_rows(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t columns, Pair* to);
/// The same of up to 16 columns, in panels of 16.
void pack_narrow(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t columns, Pair* to);
/// to[pair * pair_columns + r] = the pair of row r, r < 16; rows from `rows` on are zeros.
void pack_columns_of_pairs(const Half* from, std::int64_t row, std::int64_t depth, std::int64_t rows, Pair* to);

/// to[m][0..columns) = (from or 0) + sum over pairs of a(m, k) b[k]. The pair k of row m lies at a[m * a_row + 2 k], or
/// packed at a[2 (k * lanes + m)].
struct PairTile {
  const Half* a;
  std::int64_t a_row;
  const Pair* b;
  std::int64_t pairs;
  const float* from;
  float* to;
  std::int64_t row;  // of from and to
};
/// Up to most_pair_rows rows, of up to 16 columns or of 32.
void run_pair_tile(const PairTile& tile, std::int64_t rows, bool narrow, bool packed);

/// One of c and wide is there: wide takes the rounded values as float32, without further steps.
struct PairFinish {
  const float* sums;
  std::int64_t sums_row, rows, columns;
  Half* c;
  float* wide;
  std::int64_t c_row;
  bool accumulate, relu;
  const Half* bias;
};
/// Rounds the sums of a tile on their way to C: each step as an op of its own would.
void finish_pairs(const PairFinish& f);

}  // namespace everyo::kernels
#endif
