#include "kernels/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"

namespace everyo {
namespace {

using kernels::LossPair;
using kernels::PairLoss;

constexpr PairLoss losses[] = {PairLoss::squared, PairLoss::absolute, PairLoss::logistic, PairLoss::binary_probability};

double plain_value(PairLoss loss, double x, double t) {
  if (loss == PairLoss::squared) return (x - t) * (x - t);
  if (loss == PairLoss::absolute) return std::abs(x - t);
  if (loss == PairLoss::logistic) return std::log1p(std::exp(-x)) + x - x * t;
  return -t * std::log(x) - (1 - t) * std::log1p(-x);
}
double plain_slope(PairLoss loss, double x, double t) {
  if (loss == PairLoss::squared) return 2 * (x - t);
  if (loss == PairLoss::absolute) return x > t ? 1 : x < t ? -1 : 0;
  if (loss == PairLoss::logistic) return 1 / (1 + std::exp(-x)) - t;
  return (x - t) / (x * (1 - x));
}
double plain_target_slope(PairLoss loss, double x, double t) {
  if (loss == PairLoss::logistic) return -x;
  if (loss == PairLoss::binary_probability) return std::log1p(-x) - std::log(x);
  return -plain_slope(loss, x, t);
}

template <class T>
std::vector<T> draws(std::int64_t count, double low, double high, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>(uniform(engine));
  return values;
}

template <class T>
class PairLosses : public testing::Test {};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(PairLosses, FloatingTypes);

TYPED_TEST(PairLosses, ValuesAndGradientsAgreeWithThePlainFormulas) {
  using T = TypeParam;
  // float32: logarithm and exponential are good to an ulp, a few operations around them; halves add one rounding.
  const double eps = finfo(dtype_v<T>).eps, relative = is_half(dtype_v<T>) ? eps / 2 + 2e-6 : 10 * eps;
  for (const PairLoss loss : losses)
    for (const std::int64_t n : {1, 5, 16, 1029, 40000}) {
      const bool probability = loss == PairLoss::binary_probability;
      const auto x = probability ? draws<T>(n, 0.01, 0.99, 1) : draws<T>(n, -7, 7, 1);
      const auto t = draws<T>(n, 0, 1, 2), each = draws<T>(n, 0.5, 2, 3);
      const LossPair pair{dtype_v<T>, x.data(), t.data(), n};
      std::vector<T> value(x.size()), grad(x.size()), grad_target(x.size()), weighted(x.size());
      const double sum = kernels::loss_sum(loss, pair);
      kernels::loss_values(loss, pair, value.data());
      kernels::loss_backward(loss, pair, {.scale = 0.5, .grad_x = grad.data(), .grad_target = grad_target.data()});
      kernels::loss_backward(loss, pair, {.scale = 2, .each = each.data(), .grad_x = weighted.data()});
      double want_sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double a = static_cast<double>(widen(x[i])), b = static_cast<double>(widen(t[i]));
        const double want = plain_value(loss, a, b), slope = plain_slope(loss, a, b),
                     target_slope = plain_target_slope(loss, a, b);
        const double factor = 2 * static_cast<double>(widen(each[i]));
        want_sum += want;
        // The terms of a logistic loss cancel; each is at most |x|. 1 - p loses what is below an ulp of 1.
        const double magnitude = want + (probability ? 1 : std::abs(a));
        ASSERT_NEAR(static_cast<double>(widen(value[i])), want, relative * magnitude);
        ASSERT_NEAR(static_cast<double>(widen(grad[i])), 0.5 * slope, relative * (1 + std::abs(slope)));
        ASSERT_NEAR(static_cast<double>(widen(grad_target[i])), 0.5 * target_slope,
                    relative * (1 + std::abs(target_slope)));
        ASSERT_NEAR(static_cast<double>(widen(weighted[i])), factor * slope,
                    2 * relative * factor * (1 + std::abs(slope)));
      }
      // The sum is over unrounded losses.
      EXPECT_NEAR(sum, want_sum, (std::is_same_v<T, double> ? 1e-12 : 1e-6) * want_sum);
    }
}

TYPED_TEST(PairLosses, SameBitsForAnyThreadsAndOffset) {
  using T = TypeParam;
  const std::int64_t n = 60001;
  const auto x = draws<T>(n + 8, -3, 3, 1), t = draws<T>(n + 8, 0, 1, 2);
  for (const PairLoss loss : {PairLoss::squared, PairLoss::logistic}) {
    std::vector<double> sums;
    std::vector<std::vector<T>> grads;
    for (const int threads : {1, 2, 3})
      for (const std::ptrdiff_t offset : {0, 1, 7}) {
        const ThreadLimit limit(threads);
        std::vector<T> a(x.size()), b(x.size()), grad(static_cast<std::size_t>(n));
        std::copy_n(x.begin(), n, a.begin() + offset);
        std::copy_n(t.begin(), n, b.begin() + offset);
        const LossPair pair{dtype_v<T>, a.data() + offset, b.data() + offset, n};
        sums.push_back(kernels::loss_sum(loss, pair));
        kernels::loss_backward(loss, pair, {.grad_x = grad.data()});
        grads.push_back(grad);
      }
    for (std::size_t i = 1; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i], sums[0]);
      EXPECT_EQ(0, std::memcmp(grads[i].data(), grads[0].data(), static_cast<std::size_t>(n) * sizeof(T)));
    }
  }
}

// numerics N09: a float16 mean loss over more elements than float16 can count.
TEST(PairLossCases, N09_Float16SumOfManyElements) {
  const std::vector<Float16> x(70000, to_float16(3)), t(70000, to_float16(1));
  const LossPair pair{float16, x.data(), t.data(), 70000};
  EXPECT_EQ(kernels::loss_sum(PairLoss::squared, pair), 280000);
  EXPECT_EQ(kernels::loss_sum(PairLoss::absolute, pair), 140000);
}

TEST(PairLossCases, FarLogitsStayFinite) {
  const float x[] = {800, -800, 30, 0}, t[] = {1, 0, 1, 0.5f};
  float value[4], grad[4];
  const LossPair pair{float32, x, t, 4};
  kernels::loss_values(PairLoss::logistic, pair, value);
  EXPECT_EQ(value[0], 0);
  EXPECT_EQ(value[1], 0);
  EXPECT_NEAR(value[2], 9.3576e-14, 1e-17);  // log(1 + e^-30): what 1 + e^-30 rounds away is kept
  kernels::loss_backward(PairLoss::logistic, pair, {.grad_x = grad});
  EXPECT_EQ(grad[0], 0);
  EXPECT_EQ(grad[1], 0);
}

TEST(PairLossCases, ProbabilitiesAreClippedAndChecked) {
  const float x[] = {0, 1, 0.5f}, t[] = {1, 1, 0};
  float value[3], grad[3];
  const LossPair pair{float32, x, t, 3};
  kernels::loss_values(PairLoss::binary_probability, pair, value);
  EXPECT_NEAR(value[0], 16.118f, 1e-3);  // -log 1e-7
  EXPECT_NEAR(value[1], 0, 2e-7);
  kernels::loss_backward(PairLoss::binary_probability, pair, {.grad_x = grad});
  EXPECT_EQ(grad[0], 0);  // clipping passes no gradient outside its interval
  EXPECT_EQ(grad[1], 0);
  EXPECT_EQ(grad[2], 2);
  const float bad[] = {0, 1, NAN, -0.25f, 2};
  EXPECT_EQ(kernels::find_bad_probability(float32, bad, 5), 3);
  EXPECT_EQ(kernels::find_bad_probability(float32, bad, 3), -1);
}

TEST(PairLossCases, AbsoluteHasNoSlopeAtZero) {
  const float x[] = {1, 2, NAN}, t[] = {1, 3, 0};
  float grad[3];
  kernels::loss_backward(PairLoss::absolute, {float32, x, t, 3}, {.grad_x = grad});
  EXPECT_EQ(grad[0], 0);
  EXPECT_EQ(grad[1], -1);
  EXPECT_TRUE(std::isnan(grad[2]));
}

}  // namespace
}  // namespace everyo
