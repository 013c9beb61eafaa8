#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Kernels that follow indices. An index is int64 or int32; -n..-1 count from the end, as in NumPy.
namespace everyo::kernels {

/// The first position whose index lies outside lowest..limit-1, or -1. `index` is int64 or int32.
std::int64_t find_bad_index(DType index_dtype, const void* index, std::int64_t count, std::int64_t lowest,
                            std::int64_t limit) noexcept;

/// The value at one position.
std::int64_t index_at(DType index_dtype, const void* index, std::int64_t position) noexcept;

/// [outer, limit, inner] along its middle by `index` [count]: out [outer, count, inner]. Indices are in range.
struct IndexedRows {
  std::int64_t outer, limit, inner, count;
  DType index_dtype;
  const void* index;
};
void gather_rows(const IndexedRows& rows, std::size_t element_size, const void* x, void* out);

/// The gradient of gather_rows: grad_x [outer, limit, inner] = sum over the positions that name a row, in ascending
/// order, of grad [outer, count, inner]; a row nobody names is 0. Summed in float64, rounded once. Floating dtypes.
void gather_rows_backward(const IndexedRows& rows, DType dtype, const void* grad, void* grad_x);

/// out [count, classes] = 1 where the class is the index, else 0. Indices are in range.
void one_hot(DType index_dtype, const void* index, std::int64_t count, std::int64_t classes, DType dtype, void* out);

/// out[n] = value.
void fill(DType dtype, void* out, std::int64_t n, double value);

/// out[i] = start + i * step, computed in float64 and rounded once.
void arange(DType dtype, void* out, std::int64_t n, double start, double step);

}  // namespace everyo::kernels
