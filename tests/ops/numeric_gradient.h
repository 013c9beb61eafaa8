#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/ops.h"

namespace everyo {

/// float64 leaf of uniform draws from [low, high), the same for a seed.
inline Tensor uniform_leaf(const Shape& shape, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  const Tensor x = Tensor::empty(shape, float64);
  for (double& v : x.data<double>()) v = uniform(engine);
  return x.set_requires_grad();
}

/// Holds the gradients of f at `leaves` (float64) to central differences of sum(f(leaves) * weights), with fixed
/// weights that make every output count differently.
inline void check_gradients(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves) {
  const Tensor y = f();
  const Tensor weights = uniform_leaf(y.shape(), 99, 0.5, 1.5).detach();
  y.backward({.seed = &weights});
  const auto value = [&] {
    const NoGrad off;
    const Tensor out = f();
    double total = 0;
    for (std::size_t i = 0; i < out.data<double>().size(); ++i)
      total += out.data<double>()[i] * weights.data<double>()[i];
    return total;
  };
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    const std::vector<double> gradient = leaves[l].grad().to_vector();
    const auto x = leaves[l].data<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double old = x[i], step = 1e-5;
      x[i] = old + step;
      const double above = value();
      x[i] = old - step;
      const double below = value();
      x[i] = old;
      const double expected = (above - below) / (2 * step);
      // Central differences err by step^2 times the third derivative, and by 1e-16 / step.
      ASSERT_NEAR(gradient[i], expected, 1e-7 * (1 + std::abs(expected))) << "input " << l << " element " << i;
    }
    leaves[l].zero_grad();
  }
}

/// The text of the E that f throws; "" and a failure when it throws none.
template <class E>
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace everyo
