#include "kernels/matmul.h"

#include <algorithm>
#include <type_traits>

#include "everyo/half.h"
#include "kernels/bfloat16_matmul.h"
#include "kernels/convert.h"
#include "kernels/packed_matmul.h"
#include "kernels/parallel.h"
#include "kernels/reduce.h"
#include "kernels/scratch.h"
#include "kernels/small_matmul.h"
#include "kernels/vendor_matmul.h"

namespace everyo::kernels {
namespace {

// Which kernel, from the problem alone, so that the bits do not depend on the number of threads. Measured with AVX-512
// on 2 cores: the small kernel keeps up with oneDNN as long as B stays in the second-level cache, and saves its call;
// with two threads oneDNN's split wins from about 800,000 products on. oneDNN may split the sum of a transposed A by
// threads, so those have our own kernels only.
bool is_small(const MatmulProblem& p) {
  const std::int64_t work = p.m * p.n * p.k;
  if (p.transpose_a) return work <= 128 * 1024 || (!p.transpose_b && p.n * p.k <= 64 * 1024);
  return work <= (p.transpose_b ? 256 * 1024 : 768 * 1024);
}

// Of halves both operands are widened first, which the packed kernel does on the way.
bool is_small_of_halves(const MatmulProblem& p) { return p.m * p.n * p.k <= 256 * 1024; }

// K = 0: an empty sum.
template <class T>
void fill_with_bias(const MatmulProblem& p, T* c, const MatmulEpilogue<T>& epilogue) {
  if (p.accumulate) return;
  for (std::int64_t m = 0; m < p.m; ++m) {
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto value = epilogue.bias ? widen(epilogue.bias[n]) : decltype(widen(T{})){};
      c[m * p.n + n] = narrow<T>(epilogue.relu && value < 0 ? decltype(value){} : value);
    }
  }
}

}  // namespace

template <class T>
void matmul(const MatmulProblem& p, const T* a, const T* b, T* c, const MatmulEpilogue<T>& epilogue) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return fill_with_bias(p, c, epilogue);
  if constexpr (std::is_same_v<T, float>) {
    if (is_small(p)) return small_matmul(p, a, b, c, epilogue);
    if (vendor_matmul(p, a, b, c, epilogue)) return;
  }
  if constexpr (sizeof(T) == 2) {
    if (vendor_matmul_of_halves(p, a, b, c, epilogue)) return;
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (bfloat16_matmul(p, a, b, c, epilogue)) return;
  }
  if constexpr (sizeof(T) == 2) {
    if (is_small_of_halves(p)) return small_matmul(p, a, b, c, epilogue);
  }
  packed_matmul(p, a, b, c, epilogue);
}

template <class T>
void matmul_widened(const MatmulProblem& p, const T* a, const T* b, float* c) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return static_cast<void>(std::fill_n(c, p.m * p.n, 0.0f));
  if (vendor_takes_halves<T>(p)) {  // whose bits these are to be
    const Scratch<T> halves(p.m * p.n);
    matmul(p, a, b, halves.data());
    return convert(dtype_v<T>, halves.data(), float32, c, p.m * p.n);
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (bfloat16_matmul(p, a, b, c)) return;
  }
  if (is_small_of_halves(p)) return small_matmul(p, a, b, c);
  packed_matmul(p, a, b, c);
}

template <class T>
void matmul_batched(const MatmulProblem& each, const BatchStrides& batch, const T* a, const T* b, T* c) {
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < batch.rank; ++i) count *= batch.sizes[i];
  const std::int64_t work = std::max<std::int64_t>(each.m * each.n * each.k, 1);
  // Large products use the threads themselves; of small ones a thread gets a run of them.
  constexpr std::int64_t run_work = 1 << 20, alone = 1 << 26;
  const std::int64_t grain = work >= alone ? count : std::max<std::int64_t>(1, run_work / work);
  parallel_for(count, grain, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t index = first; index < end; ++index) {
      std::int64_t rest = index, at_a = 0, at_b = 0;
      for (std::int64_t i = batch.rank - 1; i >= 0; --i) {
        const std::int64_t place = rest % batch.sizes[i];
        rest /= batch.sizes[i];
        at_a += place * batch.a[i];
        at_b += place * batch.b[i];
      }
      matmul(each, a + at_a, b + at_b, c + index * each.m * each.n);
    }
  });
}

void column_sum(DType dtype, std::int64_t m, std::int64_t n, const void* x, void* out) {
  reduce(ReduceKind::sum, reduce_layout({m, n}, axis_bit(0)), dtype, x, dtype, out);
}

template void matmul(const MatmulProblem&, const float*, const float*, float*, const MatmulEpilogue<float>&);
template void matmul(const MatmulProblem&, const double*, const double*, double*, const MatmulEpilogue<double>&);
template void matmul(const MatmulProblem&, const Float16*, const Float16*, Float16*, const MatmulEpilogue<Float16>&);
template void matmul(const MatmulProblem&, const BFloat16*, const BFloat16*, BFloat16*,
                     const MatmulEpilogue<BFloat16>&);
template void matmul_widened(const MatmulProblem&, const Float16*, const Float16*, float*);
template void matmul_widened(const MatmulProblem&, const BFloat16*, const BFloat16*, float*);
template void matmul_batched(const MatmulProblem&, const BatchStrides&, const float*, const float*, float*);
template void matmul_batched(const MatmulProblem&, const BatchStrides&, const double*, const double*, double*);
template void matmul_batched(const MatmulProblem&, const BatchStrides&, const Float16*, const Float16*, Float16*);
template void matmul_batched(const MatmulProblem&, const BatchStrides&, const BFloat16*, const BFloat16*, BFloat16*);

}  // namespace everyo::kernels
