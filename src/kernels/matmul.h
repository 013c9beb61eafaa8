#pragma once
#include <cstdint>

#include "everyo/dtype.h"

// Matrix products of dense row-major matrices. T: float, double, Float16, BFloat16.
//   M rows of C, N columns of C, K the summed dimension
namespace everyo::kernels {

/// C [M, N] = op(A) [M, K] op(B) [K, N].
struct MatmulProblem {
  std::int64_t m, n, k;
  bool transpose_a = false;  ///< A is stored [K, M]
  bool transpose_b = false;  ///< B is stored [N, K]
  bool accumulate = false;   ///< the product is added to C
  friend constexpr bool operator==(const MatmulProblem&, const MatmulProblem&) = default;
};

/// What is done to the product before it is stored, each step rounded to T as separate ops would. Not with accumulate.
template <class T>
struct MatmulEpilogue {
  const T* bias = nullptr;  ///< [N], added to each row
  bool relu = false;
};

/// Runs on up to max_threads() threads. Halves are summed in float32 and rounded once. The same shapes and layout give
/// the same bits for any number of threads and any alignment; the order of a sum depends only on the problem.
template <class T>
void matmul(const MatmulProblem& problem, const T* a, const T* b, T* c, const MatmulEpilogue<T>& epilogue = {});

/// The same product in float32, each element rounded to the half T: for what widens it next. C is not read.
template <class T>
void matmul_widened(const MatmulProblem& problem, const T* a, const T* b, float* c);

/// out[N] = the sum over rows of x [M, N], of floating `dtype`: a bias gradient. The same bits as summing axis 0.
void column_sum(DType dtype, std::int64_t m, std::int64_t n, const void* x, void* out);

/// A batch of equal products. Strides are in elements and may be 0 (one matrix for all); C is dense.
struct BatchStrides {
  std::int64_t rank = 0;
  std::int64_t sizes[8] = {}, a[8] = {}, b[8] = {};
};
template <class T>
void matmul_batched(const MatmulProblem& each, const BatchStrides& batch, const T* a, const T* b, T* c);

}  // namespace everyo::kernels
