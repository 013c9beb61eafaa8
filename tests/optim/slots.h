#pragma once
#include <vector>

#include "everyo/optim.h"
#include "support/test_ops.h"

// Parameters without a model.
namespace everyo_test {

/// Gives a slot a gradient.
inline void set_grad(const eo::Tensor& p, const std::vector<double>& values) {
  p.zero_grad();
  const eo::Tensor g = eo::Tensor::from<double>(values, p.shape());
  eo::Tensor cast = eo::Tensor::empty(p.spec());
  cast.assign(g);
  p.backward({.seed = &cast});
}
inline eo::Tensor slot(const std::vector<double>& values, eo::DType dtype = eo::float32) {
  const eo::Tensor t = eo::Tensor::empty({dtype, {static_cast<std::int64_t>(values.size())}});
  t.assign(eo::Tensor::from<double>(values, t.shape()));
  t.set_requires_grad();
  return t;
}
inline std::vector<double> ramp(std::size_t n, double from, double by) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = from + by * static_cast<double>(i);
  return values;
}
/// float32 arithmetic over a few steps: a few units in the last place of the largest term.
inline constexpr double float32_tolerance = 2e-6;

}  // namespace everyo_test
