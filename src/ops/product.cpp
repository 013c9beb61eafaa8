#include "ops/product.h"

namespace everyo::inline v1 {
namespace {

// infer has refused what is not floating.
template <class F>
void on_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f.template operator()<double>();
    case DType::float16: return f.template operator()<Float16>();
    case DType::bfloat16: return f.template operator()<BFloat16>();
    default: return f.template operator()<float>();
  }
}
template <class T>
T* elements(const Tensor& t) {
  return reinterpret_cast<T*>(t.bytes());
}

}  // namespace

void multiply_matrices(const kernels::MatmulProblem& problem, const Tensor& a, const Tensor& b, const Tensor& out,
                       const Tensor* bias, bool relu) {
  on_floating(out.dtype(), [&]<class T>() {
    kernels::matmul<T>(problem, elements<T>(a), elements<T>(b), elements<T>(out),
                       {bias ? elements<T>(*bias) : nullptr, relu});
  });
}

void multiply_matrices(const kernels::MatmulProblem& problem, const kernels::BatchStrides& batch, const Tensor& a,
                       const Tensor& b, const Tensor& out) {
  on_floating(out.dtype(), [&]<class T>() {
    kernels::matmul_batched<T>(problem, batch, elements<T>(a), elements<T>(b), elements<T>(out));
  });
}

void give_product(Backward& b, std::size_t i, const Spec& spec, kernels::MatmulProblem problem, const Tensor& left,
                  const Tensor& right) {
  if (const Target target = b.target(i)) {
    problem.accumulate = target.add;
    multiply_matrices(problem, left, right, target.memory);
    b.wrote(i);
    return;
  }
  Tensor gradient = Tensor::empty(spec);
  multiply_matrices(problem, left, right, gradient);
  b.give(i, std::move(gradient));
}

void give_weight_product(Backward& b, std::size_t i, const Spec& spec, kernels::MatmulProblem problem,
                         const Tensor& left, const Tensor& right) {
  if (!is_half(spec.dtype) || b.target(i)) return give_product(b, i, spec, problem, left, right);
  const Scoped<&Context::category> category(MemoryCategory::gradient);  // the cast passes it on as it is
  Tensor gradient = Tensor::empty({float32, spec.shape});
  on_floating(spec.dtype, [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      kernels::matmul_widened<T>(problem, elements<T>(left), elements<T>(right), elements<float>(gradient));
  });
  b.give(i, std::move(gradient));
}

void give_column_sum(Backward& b, std::size_t i, const Tensor& dz) {
  const std::int64_t k = dz.shape()[-1];
  const Target target = b.target(i);
  const bool straight = target && !target.add;
  Tensor sum = straight ? target.memory : Tensor::empty({dz.dtype(), {k}});
  kernels::column_sum(dz.dtype(), k == 0 ? 0 : dz.size() / k, k, dz.bytes(), sum.bytes());
  if (straight)
    b.wrote(i);
  else
    b.give(i, std::move(sum));
}

}  // namespace everyo::inline v1
