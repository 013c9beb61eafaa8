#include "kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"

namespace everyo {
namespace {

using kernels::SoftmaxShape;

template <class T>
std::vector<T> draws(std::int64_t count, double range, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-range, range);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>(uniform(engine));
  return values;
}

std::vector<double> widened(const auto& values) {
  std::vector<double> wide;
  for (const auto v : values) wide.push_back(static_cast<double>(widen(v)));
  return wide;
}

// Every line of [outer, classes, inner]: f(index of its first element).
template <class F>
void for_each_line(const SoftmaxShape& s, F&& f) {
  for (std::int64_t o = 0; o < s.outer; ++o)
    for (std::int64_t j = 0; j < s.inner; ++j) f(static_cast<std::size_t>(o * s.classes * s.inner + j));
}

std::vector<double> plain_softmax(const SoftmaxShape& s, const std::vector<double>& x, bool logarithm) {
  std::vector<double> y(x.size());
  for_each_line(s, [&](std::size_t first) {
    const auto at = [&](std::int64_t k) { return first + static_cast<std::size_t>(k * s.inner); };
    double greatest = x[first], sum = 0;
    for (std::int64_t k = 0; k < s.classes; ++k) greatest = std::max(greatest, x[at(k)]);
    for (std::int64_t k = 0; k < s.classes; ++k) sum += std::exp(x[at(k)] - greatest);
    for (std::int64_t k = 0; k < s.classes; ++k)
      y[at(k)] = logarithm ? x[at(k)] - greatest - std::log(sum) : std::exp(x[at(k)] - greatest) / sum;
  });
  return y;
}
std::vector<double> plain_backward(const SoftmaxShape& s, const std::vector<double>& y, const std::vector<double>& g,
                                   bool logarithm) {
  std::vector<double> out(y.size());
  for_each_line(s, [&](std::size_t first) {
    const auto at = [&](std::int64_t k) { return first + static_cast<std::size_t>(k * s.inner); };
    double sum = 0;
    for (std::int64_t k = 0; k < s.classes; ++k) sum += logarithm ? g[at(k)] : g[at(k)] * y[at(k)];
    for (std::int64_t k = 0; k < s.classes; ++k)
      out[at(k)] = logarithm ? g[at(k)] - std::exp(y[at(k)]) * sum : y[at(k)] * (g[at(k)] - sum);
  });
  return out;
}

constexpr SoftmaxShape shapes[] = {{3, 1, 1}, {4, 10, 1},  {2, 16, 1},   {1, 4097, 1}, {300, 33, 1},
                                   {2, 5, 3}, {3, 70, 40}, {1, 9, 1000}, {70, 3, 17}};

template <class T>
class Softmax : public testing::Test {};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(Softmax, FloatingTypes);

TYPED_TEST(Softmax, AgreesWithThePlainFormulaAlongAnyAxis) {
  using T = TypeParam;
  // float32: the exponential's 1 ulp, a sum of blocks and a quotient, a few ulp in all; halves add their own rounding.
  const double eps = finfo(dtype_v<T>).eps, relative = is_half(dtype_v<T>) ? eps / 2 + 1e-6 : 8 * eps;
  for (const SoftmaxShape& s : shapes) {
    const auto x = draws<T>(s.outer * s.classes * s.inner, 8, 1), g = draws<T>(s.outer * s.classes * s.inner, 1, 2);
    std::vector<T> y(x.size()), log_y(x.size()), grad(x.size());
    kernels::softmax(dtype_v<T>, s, x.data(), y.data());
    kernels::log_softmax(dtype_v<T>, s, x.data(), log_y.data());
    const auto want = plain_softmax(s, widened(x), false), log_want = plain_softmax(s, widened(x), true);
    const auto got = widened(y), log_got = widened(log_y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], relative * want[i] + finfo(dtype_v<T>).smallest_subnormal) << i;
      // The logarithm of the sum and the shifted element are each exact to an ulp or so of the larger.
      ASSERT_NEAR(log_got[i], log_want[i], relative * (16 + std::abs(log_want[i]))) << i;
    }
    const auto backward_of = [&](bool logarithm) {
      const auto& saved = logarithm ? log_y : y;
      if (logarithm)
        kernels::log_softmax_backward(dtype_v<T>, s, saved.data(), g.data(), grad.data());
      else
        kernels::softmax_backward(dtype_v<T>, s, saved.data(), g.data(), grad.data());
      const auto expected = plain_backward(s, widened(saved), widened(g), logarithm);
      const auto got_grad = widened(grad);
      double scale = 0;  // a gradient is a difference of terms up to the line's sum
      for (const double e : expected) scale = std::max(scale, std::abs(e));
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(got_grad[i], expected[i], relative * std::abs(expected[i]) + 4e-6 * (1 + scale))
            << logarithm << " " << i;
    };
    backward_of(false);
    backward_of(true);
  }
}

TYPED_TEST(Softmax, SameBitsForAnyThreadsAndOffset) {
  using T = TypeParam;
  for (const SoftmaxShape& s : {SoftmaxShape{400, 33, 1}, SoftmaxShape{3, 70, 77}, SoftmaxShape{5, 9000, 1}}) {
    const auto x = draws<T>(s.outer * s.classes * s.inner, 4, 1);
    std::vector<T> first;
    for (const int threads : {1, 2, 3})
      for (const std::size_t offset : {0u, 1u, 5u}) {
        const ThreadLimit limit(threads);
        std::vector<T> moved(x.size() + 5), y(x.size() + 5);
        std::copy(x.begin(), x.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
        kernels::softmax(dtype_v<T>, s, moved.data() + offset, y.data() + offset);
        std::vector<T> result(y.begin() + static_cast<std::ptrdiff_t>(offset),
                              y.begin() + static_cast<std::ptrdiff_t>(offset + x.size()));
        if (first.empty()) first = result;
        ASSERT_EQ(0, std::memcmp(first.data(), result.data(), x.size() * sizeof(T)));
      }
  }
}

// numerics N11: float16 softmax over 4096 equal logits sums to 2 elsewhere.
TEST(SoftmaxCases, N11_Float16OverAFewThousandSumsToOne) {
  const std::vector<Float16> x(4096, to_float16(3));
  std::vector<Float16> y(4096);
  double sum = 0;
  kernels::softmax(float16, {1, 4096, 1}, x.data(), y.data());
  for (const Float16 v : y) sum += static_cast<double>(to_float(v));
  EXPECT_EQ(sum, 1);
  sum = 0;
  kernels::softmax(float16, {1, 4096, 1}, x.data(), y.data());
  std::vector<Float16> wide(4096 * 3, to_float16(-2)), out(wide.size());
  kernels::softmax(float16, {1, 4096, 3}, wide.data(), out.data());
  for (std::size_t i = 0; i < out.size(); i += 3) sum += static_cast<double>(to_float(out[i]));
  EXPECT_EQ(sum, 1);
}

TEST(SoftmaxCases, GreatLogitsMaskedOnesAndNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  float x[] = {1000, 999, -inf, -1000}, y[4];
  kernels::softmax(float32, {1, 4, 1}, x, y);
  EXPECT_NEAR(y[0], 0.7310586f, 2e-7);  // 1 / (1 + e^-1), to 2 ulp
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 0);
  x[1] = std::nanf("");
  kernels::softmax(float32, {1, 4, 1}, x, y);
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
  kernels::log_softmax(float32, {1, 1, 4}, x, y);  // each its own line
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::isnan(y[1]));
}

}  // namespace
}  // namespace everyo
