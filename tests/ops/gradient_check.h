#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "everyo/ops.h"

namespace everyo_test {

/// Draws in [low, high], steps of 2^-10, none nearer than 2^-9 to 0 (a corner of many functions).
inline everyo::Tensor draw(const everyo::Shape& shape, unsigned seed, double low = -2, double high = 2,
                           everyo::DType dtype = everyo::float64) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& v : values) {
    v = std::round(uniform(engine) * 1024) / 1024;
    if (std::abs(v) < 0x1p-9) v = 0.25;
  }
  return everyo::cast(everyo::Tensor::from<double>(values, shape), dtype);
}

/// Compares the gradients of f(inputs) by backward with central differences, in float64, for a drawn gradient of the
/// result.
template <class F>
void check_gradients(F&& f, std::vector<everyo::Tensor> inputs) {
  using everyo::Tensor;
  for (const Tensor& x : inputs) x.set_requires_grad();
  const Tensor y = f(inputs);
  const Tensor seed = draw(y.shape(), 99);
  y.backward({.seed = &seed});
  const auto weight = seed.to_vector();
  const everyo::NoGrad no_grad;
  const auto value = [&] {
    const auto out = f(inputs).to_vector();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += weight[i] * out[i];
    return sum;
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_TRUE(inputs[k].grad().defined()) << "input " << k;
    const auto got = inputs[k].grad().to_vector();
    const auto x = inputs[k].data<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double here = x[i], h = 1e-5;
      x[i] = here + h;
      const double above = value();
      x[i] = here - h;
      const double below = value();
      x[i] = here;
      const double want = (above - below) / (2 * h);
      // Cancellation: 1e-16 of a sum near 100, over 2e-5; the third derivative: 1e-10.
      EXPECT_NEAR(got[i], want, 1e-7 * std::max(1.0, std::abs(want))) << "input " << k << ", element " << i;
    }
  }
}

}  // namespace everyo_test
