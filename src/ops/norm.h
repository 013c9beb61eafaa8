#pragma once
#include <string_view>

#include "everyo/ops.h"
#include "kernels/channel_norm.h"
#include "ops/lowering.h"

// What the records of the norms share. Their inputs end in weight and bias: none, weight, or both.
namespace everyo::inline v1 {

/// Throws DTypeError unless x is floating, ValueError unless eps is positive.
void require_norm(std::string_view op, const Tensor& x, double eps);
/// Throws DTypeError unless floating, ShapeError unless of `shape`, x's `axes`.
void require_parameter(std::string_view op, std::string_view name, const Tensor& parameter, const Shape& shape,
                       const Tensor& x, std::string_view axes);

/// The inputs of a norm: `before`, then what there is of weight and bias. A bias alone gets a weight of ones, `shape`.
class NormInputs {
 public:
  NormInputs(std::initializer_list<const Tensor*> before, const Tensor& weight, const Tensor& bias, const Shape& shape);
  [[nodiscard]] std::span<const Tensor* const> list() const { return {list_.data(), count_}; }

 private:
  std::array<const Tensor*, 5> list_;
  std::size_t count_ = 0;
  Tensor ones_;
};

/// Input i, undefined when there is no such input.
inline Tensor tensor_of(const Inputs& in, std::size_t i) { return i < in.size() ? in[i] : Tensor(); }

/// Input i for a kernel; without such an input, nothing.
inline kernels::NormParameter parameter_of(const Inputs& in, std::size_t i) {
  if (i >= in.size()) return {};
  return {in[i].dtype(), in[i].bytes()};
}
inline kernels::NormParameter parameter_of(const Backward& b, std::size_t i) {
  if (i >= b.inputs()) return {};
  return {b.input(i).dtype(), b.input(i).bytes()};
}

/// Memory for the gradient of input i, a parameter: its slot where that takes it.
class ParameterGradient {
 public:
  /// None when input i is not there or needs none.
  ParameterGradient(Backward& b, std::size_t i);
  [[nodiscard]] kernels::NormGradient memory() const;
  void give();

 private:
  Backward& b_;
  std::size_t input_;
  Tensor values_;
  bool straight_ = false;
};

/// All operands read once, all results written once, and so many operations for each element of x.
Cost norm_cost(const Inputs& in, const Specs& out, double operations);

/// normalised weight + bias, with the parameters from input `first` on, in x's dtype: the end of a composition.
Tensor affine(const Inputs& in, std::size_t first, Tensor normalised);

/// The dtype that a norm of x is computed in, and that of its moments.
constexpr DType wide_of(DType dtype) noexcept { return dtype == float64 ? float64 : float32; }

}  // namespace everyo::inline v1
