#pragma once
#include "everyo/op.h"
#include "kernels/matmul.h"

// What the ops made of matrix products share.
namespace everyo::inline v1 {

/// out = a b as `problem` says, then the epilogue; all of one floating dtype. bias may be null.
void multiply_matrices(const kernels::MatmulProblem& problem, const Tensor& a, const Tensor& b, const Tensor& out,
                       const Tensor* bias = nullptr, bool relu = false);
/// The same for a batch, without epilogue.
void multiply_matrices(const kernels::MatmulProblem& problem, const kernels::BatchStrides& batch, const Tensor& a,
                       const Tensor& b, const Tensor& out);

/// Gives input i, of `spec`, the product as its gradient: straight into its slot where that takes it.
void give_product(Backward& b, std::size_t i, const Spec& spec, kernels::MatmulProblem problem, const Tensor& left,
                  const Tensor& right);

/// The same for a weight, which mostly is a cast of a float32 one: of halves the product is given in float32, with
/// values of the half.
void give_weight_product(Backward& b, std::size_t i, const Spec& spec, kernels::MatmulProblem problem,
                         const Tensor& left, const Tensor& right);

/// Gives input i, a bias [K], the sum of dz [.., K] over its leading dimensions: straight into its slot where that is
/// empty.
void give_column_sum(Backward& b, std::size_t i, const Tensor& dz);

}  // namespace everyo::inline v1
