#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Vector code under the reductions: folds of contiguous rows and of columns. Accumulators are double for the floating
// dtypes, in an order that depends on the number of elements alone: not on offset, alignment, or instruction set.
namespace everyo::kernels {

enum class Fold : std::uint8_t { sum, max, min };

/// What a fold starts from: 0, -inf, inf.
double fold_start(Fold fold) noexcept;

/// acc[r] = fold of acc[r] with the `count` contiguous elements of row r, for `rows` rows `row_stride` elements apart.
/// Floating dtypes. A NaN wins in max and min.
void fold_rows(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
               double* acc) noexcept;

/// acc[j] = fold of acc[j] with x[r * row_stride + j], r ascending, for `count` columns. Floating dtypes.
void fold_columns(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
                  double* acc) noexcept;

}  // namespace everyo::kernels
