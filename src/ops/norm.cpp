#include "ops/norm.h"

#include <fmt/format.h>

#include "ops/elementwise.h"

namespace everyo::inline v1 {

void require_norm(std::string_view op, const Tensor& x, double eps) {
  require_floating(op, x);
  if (!(eps > 0)) throw ValueError(fmt::format("[{}] eps is {}; it must be positive", op, eps));
}

void require_parameter(std::string_view op, std::string_view name, const Tensor& parameter, const Shape& shape,
                       const Tensor& x, std::string_view axes) {
  if (parameter.shape() != shape)
    throw ShapeError(fmt::format("[{}] {} is {}, x {}; it must be {}, the {} of x", op, name,
                                 to_string(parameter.shape()), to_string(x.shape()), to_string(shape), axes));
  if (!is_floating(parameter.dtype()))
    throw DTypeError(fmt::format("[{}] {} is {}; it must have a floating dtype; cast() it first", op, name,
                                 name_of(parameter.dtype())));
}

NormInputs::NormInputs(std::initializer_list<const Tensor*> before, const Tensor& weight, const Tensor& bias,
                       const Shape& shape) {
  for (const Tensor* each : before) list_[count_++] = each;
  if (weight.defined()) {
    list_[count_++] = &weight;
  } else if (bias.defined()) {
    ones_ = Tensor::ones(shape, bias.dtype());
    list_[count_++] = &ones_;
  }
  if (bias.defined()) list_[count_++] = &bias;
}

ParameterGradient::ParameterGradient(Backward& b, std::size_t i) : b_(b), input_(i) {
  if (i >= b.inputs() || !b.needs(i)) return;
  const Target target = b.target(i);
  const Spec spec = b.input_spec(i);
  straight_ = target && !target.add && target.memory.dtype() == spec.dtype;
  values_ = straight_ ? target.memory : Tensor::empty(spec);
}

kernels::NormGradient ParameterGradient::memory() const {
  if (!values_.defined()) return {};
  return {values_.dtype(), values_.bytes()};
}

void ParameterGradient::give() {
  if (!values_.defined()) return;
  if (straight_)
    b_.wrote(input_);
  else
    b_.give(input_, std::move(values_));
}

Cost norm_cost(const Inputs& in, const Specs& out, double operations) {
  Cost cost{.flops = operations * static_cast<double>(in[0].size())};
  for (std::size_t i = 0; i < in.size(); ++i) cost.bytes += static_cast<double>(in[i].spec().bytes());
  for (std::size_t k = 0; k < out.size(); ++k) cost.bytes += static_cast<double>(out[k].bytes());
  return cost;
}

Tensor affine(const Inputs& in, std::size_t first, Tensor normalised) {
  if (in.size() > first) normalised = multiply(normalised, in[first]);
  if (in.size() > first + 1) normalised = add(normalised, in[first + 1]);
  return cast(normalised, in[0].dtype());
}

}  // namespace everyo::inline v1
