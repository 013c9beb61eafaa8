#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/softmax-inl.h"
#include "kernels/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

template <bool logarithm, class T>
void forward_row(const T* x, T* y, std::int64_t classes) {
  const float greatest = row_max(x, classes);
  const VF shift = constant(greatest);
  const float sum =
      row_sum(classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR { return shifted_exp(x + k, shift, lanes); });
  const VF divisor = constant(sum), log_sum = constant(log_of(sum));
  for (std::int64_t k = 0; k < classes; k += float_lanes) {
    const std::int64_t lanes = std::min(float_lanes, classes - k);
    if constexpr (logarithm)
      store_lanes(hn::Sub(hn::Sub(load_lanes(x + k, lanes), shift), log_sum), y + k, lanes);
    else
      store_lanes(hn::Div(shifted_exp(x + k, shift, lanes), divisor), y + k, lanes);
  }
}

// `lanes` neighbouring columns at once.
template <bool logarithm, class T>
void forward_columns(const T* x, T* y, std::int64_t classes, std::int64_t inner, std::int64_t lanes) {
  VF shift = constant(-__builtin_inff()), sum = hn::Zero(F32());
  for (std::int64_t k = 0; k < classes; ++k) shift = hn::Max(shift, load_lanes(x + k * inner, lanes));
  for (std::int64_t k = 0; k < classes;) {
    VF block = hn::Zero(F32());
    for (const std::int64_t end = std::min(k + block_vectors, classes); k < end; ++k)
      block = hn::Add(block, exp_nonpositive(hn::Sub(load_lanes(x + k * inner, lanes), shift)));
    sum = hn::Add(sum, block);
  }
  const VF log_sum = log(sum);
  for (std::int64_t k = 0; k < classes; ++k) {
    const VF shifted = hn::Sub(load_lanes(x + k * inner, lanes), shift);
    store_lanes(logarithm ? hn::Sub(shifted, log_sum) : hn::Div(exp_nonpositive(shifted), sum), y + k * inner, lanes);
  }
}

template <bool logarithm>
HWY_INLINE VF term(VF y, VF grad) {  // of the sum in the gradient
  return logarithm ? grad : hn::Mul(grad, y);
}
template <bool logarithm>
HWY_INLINE VF gradient(VF y, VF grad, VF sum) {
  return logarithm ? hn::NegMulAdd(exp_nonpositive(y), sum, grad) : hn::Mul(y, hn::Sub(grad, sum));
}

template <bool logarithm, class T>
void backward_row(const T* y, const T* grad, T* grad_x, std::int64_t classes) {
  const VF sum = constant(row_sum(classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR {
    return term<logarithm>(load_lanes(y + k, lanes), load_lanes(grad + k, lanes));
  }));
  for (std::int64_t k = 0; k < classes; k += float_lanes) {
    const std::int64_t lanes = std::min(float_lanes, classes - k);
    store_lanes(gradient<logarithm>(load_lanes(y + k, lanes), load_lanes(grad + k, lanes), sum), grad_x + k, lanes);
  }
}

template <bool logarithm, class T>
void backward_columns(const T* y, const T* grad, T* grad_x, std::int64_t classes, std::int64_t inner,
                      std::int64_t lanes) {
  VF sum = hn::Zero(F32());
  for (std::int64_t k = 0; k < classes;) {
    VF block = hn::Zero(F32());
    for (const std::int64_t end = std::min(k + block_vectors, classes); k < end; ++k)
      block = hn::Add(block, term<logarithm>(load_lanes(y + k * inner, lanes), load_lanes(grad + k * inner, lanes)));
    sum = hn::Add(sum, block);
  }
  for (std::int64_t k = 0; k < classes; ++k)
    store_lanes(gradient<logarithm>(load_lanes(y + k * inner, lanes), load_lanes(grad + k * inner, lanes), sum),
                grad_x + k * inner, lanes);
}

// Lines [begin, end) of the outer * inner lines. Strips of columns end where the caller's range ends.
template <bool logarithm, class T>
void forward_lines(const SoftmaxShape& shape, std::int64_t begin, std::int64_t end, const T* x, T* y) {
  for (std::int64_t line = begin; line < end;) {
    const std::int64_t column = line % shape.inner, at = line / shape.inner * shape.classes * shape.inner + column;
    const std::int64_t lanes = std::min({float_lanes, shape.inner - column, end - line});
    if (shape.inner == 1)
      forward_row<logarithm>(x + at, y + at, shape.classes);
    else
      forward_columns<logarithm>(x + at, y + at, shape.classes, shape.inner, lanes);
    line += lanes;
  }
}
template <bool logarithm, class T>
void backward_lines(const SoftmaxShape& shape, std::int64_t begin, std::int64_t end, const T* y, const T* grad,
                    T* grad_x) {
  for (std::int64_t line = begin; line < end;) {
    const std::int64_t column = line % shape.inner, at = line / shape.inner * shape.classes * shape.inner + column;
    const std::int64_t lanes = std::min({float_lanes, shape.inner - column, end - line});
    if (shape.inner == 1)
      backward_row<logarithm>(y + at, grad + at, grad_x + at, shape.classes);
    else
      backward_columns<logarithm>(y + at, grad + at, grad_x + at, shape.classes, shape.inner, lanes);
    line += lanes;
  }
}

template <class T>
void forward_typed(bool logarithm, const SoftmaxShape& shape, std::int64_t begin, std::int64_t end, const void* x,
                   void* y) {
  const auto run = logarithm ? forward_lines<true, T> : forward_lines<false, T>;
  run(shape, begin, end, static_cast<const T*>(x), static_cast<T*>(y));
}
template <class T>
void backward_typed(bool logarithm, const SoftmaxShape& shape, std::int64_t begin, std::int64_t end, const void* y,
                    const void* grad, void* grad_x) {
  const auto run = logarithm ? backward_lines<true, T> : backward_lines<false, T>;
  run(shape, begin, end, static_cast<const T*>(y), static_cast<const T*>(grad), static_cast<T*>(grad_x));
}

void SoftmaxForward(bool logarithm, DType dtype, const SoftmaxShape& shape, std::int64_t begin, std::int64_t end,
                    const void* x, void* y) {
  if (dtype == float16)
    forward_typed<Float16>(logarithm, shape, begin, end, x, y);
  else if (dtype == bfloat16)
    forward_typed<BFloat16>(logarithm, shape, begin, end, x, y);
  else
    forward_typed<float>(logarithm, shape, begin, end, x, y);
}
void SoftmaxBackward(bool logarithm, DType dtype, const SoftmaxShape& shape, std::int64_t begin, std::int64_t end,
                     const void* y, const void* grad, void* grad_x) {
  if (dtype == float16)
    backward_typed<Float16>(logarithm, shape, begin, end, y, grad, grad_x);
  else if (dtype == bfloat16)
    backward_typed<BFloat16>(logarithm, shape, begin, end, y, grad, grad_x);
  else
    backward_typed<float>(logarithm, shape, begin, end, y, grad, grad_x);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(SoftmaxForward);
HWY_EXPORT(SoftmaxBackward);

constexpr std::int64_t block_elements = 8192;

// Whole strips of columns whatever the vectors' width, so that an element's bits do not depend on the cut.
std::int64_t lines_of_a_block(const SoftmaxShape& shape) {
  const std::int64_t lines = std::max<std::int64_t>(1, block_elements / std::max<std::int64_t>(1, shape.classes));
  return shape.inner == 1 ? lines : (lines + 63) / 64 * 64;
}

void forward_double(bool logarithm, const SoftmaxShape& shape, std::int64_t line, const double* x, double* y) {
  const std::int64_t at = line / shape.inner * shape.classes * shape.inner + line % shape.inner;
  const std::int64_t last = at + (shape.classes - 1) * shape.inner;
  double greatest = x[at], sum = 0;
  for (std::int64_t i = at; i <= last; i += shape.inner) greatest = std::max(greatest, x[i]);
  for (std::int64_t i = at; i <= last; i += shape.inner) sum += std::exp(x[i] - greatest);
  const double log_sum = std::log(sum);
  for (std::int64_t i = at; i <= last; i += shape.inner)
    y[i] = logarithm ? x[i] - greatest - log_sum : std::exp(x[i] - greatest) / sum;
}
void backward_double(bool logarithm, const SoftmaxShape& shape, std::int64_t line, const double* y, const double* grad,
                     double* grad_x) {
  const std::int64_t at = line / shape.inner * shape.classes * shape.inner + line % shape.inner;
  const std::int64_t last = at + (shape.classes - 1) * shape.inner;
  double sum = 0;
  for (std::int64_t i = at; i <= last; i += shape.inner) sum += logarithm ? grad[i] : grad[i] * y[i];
  for (std::int64_t i = at; i <= last; i += shape.inner)
    grad_x[i] = logarithm ? grad[i] - std::exp(y[i]) * sum : y[i] * (grad[i] - sum);
}

void forward(bool logarithm, DType dtype, const SoftmaxShape& shape, const void* x, void* y) {
  if (shape.classes == 0) return;
  use_isa();
  parallel_for(shape.outer * shape.inner, lines_of_a_block(shape), [&](std::int64_t begin, std::int64_t end) {
    if (dtype != float64) return HWY_DYNAMIC_DISPATCH(SoftmaxForward)(logarithm, dtype, shape, begin, end, x, y);
    for (std::int64_t line = begin; line < end; ++line)
      forward_double(logarithm, shape, line, static_cast<const double*>(x), static_cast<double*>(y));
  });
}
void backward(bool logarithm, DType dtype, const SoftmaxShape& shape, const void* y, const void* grad, void* grad_x) {
  if (shape.classes == 0) return;
  use_isa();
  parallel_for(shape.outer * shape.inner, lines_of_a_block(shape), [&](std::int64_t begin, std::int64_t end) {
    if (dtype != float64)
      return HWY_DYNAMIC_DISPATCH(SoftmaxBackward)(logarithm, dtype, shape, begin, end, y, grad, grad_x);
    for (std::int64_t line = begin; line < end; ++line)
      backward_double(logarithm, shape, line, static_cast<const double*>(y), static_cast<const double*>(grad),
                      static_cast<double*>(grad_x));
  });
}

}  // namespace

void softmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y) { forward(false, dtype, shape, x, y); }
void log_softmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y) { forward(true, dtype, shape, x, y); }
void softmax_backward(DType dtype, const SoftmaxShape& shape, const void* y, const void* grad, void* grad_x) {
  backward(false, dtype, shape, y, grad, grad_x);
}
void log_softmax_backward(DType dtype, const SoftmaxShape& shape, const void* y, const void* grad, void* grad_x) {
  backward(true, dtype, shape, y, grad, grad_x);
}

}  // namespace everyo::kernels
#endif
