// Copies of operands in the form that the packed matmul's tile reads. Included once per Highway target.
#if defined(EVERYO_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_PACK_INL_H_
#undef EVERYO_KERNELS_PACK_INL_H_
#else
#define EVERYO_KERNELS_PACK_INL_H_
#endif

#include "everyo/half.h"
#include "kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
/// Transposes the 4x4 blocks of 4 rows: within each 128-bit block, lane j of row i goes to lane i of row j.
HWY_INLINE void transpose_in_blocks(WideVec<float>* HWY_RESTRICT r) {
  using V = WideVec<float>;
  const WideTag<float> d;
  const hn::Repartition<std::uint64_t, WideTag<float>> pairs;
  const auto zip = [&](V a, V b, V& low, V& high) HWY_ATTR {
    low = hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
    high = hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const V t0 = hn::InterleaveLower(d, r[0], r[1]), t1 = hn::InterleaveUpper(d, r[0], r[1]);
  const V t2 = hn::InterleaveLower(d, r[2], r[3]), t3 = hn::InterleaveUpper(d, r[2], r[3]);
  zip(t0, t2, r[0], r[1]);
  zip(t1, t3, r[2], r[3]);
}

/// A square of vectors of float32: lane j of rows[i] goes to lane i of out + j * stride.
template <class T>
HWY_INLINE void transpose_square(const T* from, std::int64_t from_row, float* HWY_RESTRICT out, std::int64_t stride) {
  const WideTag<float> d;
  using V = WideVec<float>;
  constexpr std::size_t n = hn::MaxLanes(d), blocks = n / 4;
  V r[n];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < n; ++i) r[i] = load(from + static_cast<std::int64_t>(i) * from_row);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < blocks; ++i) transpose_in_blocks(r + 4 * i);
  const auto put = [&](std::size_t row, V v)
                       HWY_ATTR { hn::StoreU(v, d, out + static_cast<std::int64_t>(row) * stride); };
#pragma GCC unroll 4
  for (std::size_t c = 0; c < 4; ++c) {
    if constexpr (blocks == 1) {
      put(c, r[c]);
    } else if constexpr (blocks == 2) {
      put(c, hn::ConcatLowerLower(d, r[4 + c], r[c]));
      put(4 + c, hn::ConcatUpperUpper(d, r[4 + c], r[c]));
    } else {
      const V u0 = r[c], u1 = r[4 + c], u2 = r[8 + c], u3 = r[12 + c];
      const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(u1), u0);
      const V odd01 = hn::OddEvenBlocks(u1, hn::SwapAdjacentBlocks(u0));
      const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(u3), u2);
      const V odd23 = hn::OddEvenBlocks(u3, hn::SwapAdjacentBlocks(u2));
      put(c, hn::ConcatLowerLower(d, even23, even01));
      put(4 + c, hn::ConcatLowerLower(d, odd23, odd01));
      put(8 + c, hn::ConcatUpperUpper(d, even23, even01));
      put(12 + c, hn::ConcatUpperUpper(d, odd23, odd01));
    }
  }
}

#endif

/// `rows` rows of `columns` elements, each made `width` wide with zeros: to[row * width + column].
template <class T>
HWY_INLINE void copy_rows(const T* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns,
                          Wide<T>* HWY_RESTRICT to, std::int64_t to_row, std::int64_t width) {
  const WideTag<T> d;
  constexpr auto n = static_cast<std::int64_t>(hn::MaxLanes(WideTag<T>()));
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* source = from + row * from_row;
    auto* target = to + row * to_row;
    std::int64_t column = 0;
    for (; column + n <= columns; column += n) hn::StoreU(load(source + column), d, target + column);
    if (column < columns) {
      hn::StoreU(load_first(source + column, static_cast<std::size_t>(columns - column)), d, target + column);
      column += n;
    }
    for (; column < width; column += n) hn::StoreU(hn::Zero(d), d, target + column);
  }
}

/// The transpose: to[column * to_row + row] = from[row * from_row + column], rows padded to `width` with zeros.
template <class T>
HWY_INLINE void copy_transposed(const T* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns,
                                Wide<T>* HWY_RESTRICT to, std::int64_t to_row, std::int64_t width) {
  using F = Wide<T>;
  std::int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<F, float>) {
    constexpr auto n = static_cast<std::int64_t>(hn::MaxLanes(WideTag<T>()));
    whole_rows = rows / n * n;
    whole_columns = columns / n * n;
    for (std::int64_t row = 0; row < whole_rows; row += n) {
      for (std::int64_t column = 0; column < whole_columns; column += n) {
        transpose_square(from + row * from_row + column, from_row, to + column * to_row + row, to_row);
      }
    }
  }
#endif
  for (std::int64_t row = 0; row < width; ++row) {
    for (std::int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column) {
      to[column * to_row + row] = row < rows ? static_cast<F>(widen(from[row * from_row + column])) : F{};
    }
  }
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
