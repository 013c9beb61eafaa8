#include "kernels/row_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::RowNorm;

template <class T>
std::vector<T> draws(std::int64_t count, unsigned seed, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>(normal(engine));
  return values;
}
std::vector<double> widened(const auto& values) {
  std::vector<double> wide;
  for (const auto v : values) wide.push_back(static_cast<double>(widen(v)));
  return wide;
}

// All that a norm gives, by the plain formulas in float64.
struct Plain {
  std::vector<double> y, grad_x, grad_weight, grad_bias;
};
Plain plain(const RowNorm& norm, const std::vector<double>& x, const std::vector<double>& grad,
            const std::vector<double>& weight, const std::vector<double>& bias) {
  const auto width = static_cast<std::size_t>(norm.width);
  const auto n = static_cast<double>(width);
  Plain out{std::vector<double>(x.size()), std::vector<double>(x.size()), std::vector<double>(width),
            std::vector<double>(width)};
  std::vector<double> value(width), g(width);
  for (std::size_t first = 0; first < x.size(); first += width) {
    long double mean = 0, variance = 0;
    for (std::size_t j = 0; j < width; ++j) mean += x[first + j] / n;
    for (std::size_t j = 0; j < width; ++j) variance += (x[first + j] - mean) * (x[first + j] - mean) / n;
    const double inverse = 1 / std::sqrt(static_cast<double>(variance) + norm.eps);
    double sum = 0, product = 0;
    for (std::size_t j = 0; j < width; ++j) {
      value[j] = static_cast<double>(x[first + j] - mean) * inverse;
      out.y[first + j] = weight[j] * value[j] + bias[j];
      const bool cut = norm.relu && out.y[first + j] <= 0;
      if (cut) out.y[first + j] = 0;
      g[j] = cut ? 0 : grad[first + j];
      out.grad_weight[j] += g[j] * value[j];
      out.grad_bias[j] += g[j];
      sum += weight[j] * g[j] / n;
      product += weight[j] * g[j] * value[j] / n;
    }
    for (std::size_t j = 0; j < width; ++j)
      out.grad_x[first + j] = inverse * (weight[j] * g[j] - sum - value[j] * product);
  }
  return out;
}

// Rows of a part of a vector, of several, and long enough for blocks of sums; blocks of rows.
constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1},    {5, 3},     {70, 16},   {33, 40},
                                                            {3, 1100}, {2, 70000}, {300, 256}, {9, 129}};

template <class T>
class RowNorms : public testing::Test {};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(RowNorms, FloatingTypes);

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, double absolute, const char* what) {
  const auto wide = widened(got);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(wide[i], want[i], finfo(dtype_v<T>).eps * std::abs(want[i]) + absolute) << what << " " << i;
}

TYPED_TEST(RowNorms, AgreesWithThePlainFormulas) {
  using T = TypeParam;
  for (const auto& shape : shapes) {
    const std::int64_t rows = shape.first, width = shape.second;
    const auto x = draws<T>(rows * width, 1, 2), grad = draws<T>(rows * width, 2);
    const auto weight = draws<float>(width, 3), bias = draws<float>(width, 4);  // float32 whatever x is
    for (const bool relu : {false, true}) {
      const RowNorm norm{.dtype = dtype_v<T>,
                         .rows = rows,
                         .width = width,
                         .parameters = {{float32, weight.data()}, {float32, bias.data()}},
                         .eps = 0.1,
                         .relu = relu};
      const Plain want = plain(norm, widened(x), widened(grad), widened(weight), widened(bias));
      for_each_target([&] {
        SCOPED_TRACE(testing::Message() << rows << " x " << width << (relu ? " with ReLU" : ""));
        std::vector<T> y(x.size()), grad_x = grad;
        std::vector<float> grad_weight(weight.size()), grad_bias(bias.size());
        kernels::row_norm(norm, x.data(), y.data());
        kernels::row_norm_backward(norm, x.data(), grad_x.data(),
                                   {grad_x.data(), {float32, grad_weight.data()}, {float32, grad_bias.data()}});
        // A few roundings of values up to 10 in float32, and of sums whose terms are as large: 300 rows, 70000 columns.
        const double few = std::is_same_v<T, double> ? 1e-13 : 5e-6;
        expect_near(y, want.y, few, "y");
        expect_near(grad_x, want.grad_x, few, "grad_x");
        expect_near(grad_weight, want.grad_weight, 8 * few, "weight");
        expect_near(grad_bias, want.grad_bias, 8 * few, "bias");
        // Each alone, bias without x: the same bits.
        std::vector<T> alone(x.size());
        std::vector<float> weight_alone(weight.size()), bias_alone(bias.size());
        kernels::row_norm_backward(norm, x.data(), grad.data(), {alone.data()});
        kernels::row_norm_backward(norm, x.data(), grad.data(), {nullptr, {float32, weight_alone.data()}});
        kernels::row_norm_backward(norm, relu ? x.data() : nullptr, grad.data(),
                                   {nullptr, {}, {float32, bias_alone.data()}});
        ASSERT_EQ(widened(alone), widened(grad_x));
        ASSERT_EQ(weight_alone, grad_weight);
        ASSERT_EQ(bias_alone, grad_bias);
      });
    }
  }
}

template <class T>
std::vector<double> normalised(const std::vector<T>& x, double eps) {
  std::vector<T> y(x.size());
  kernels::row_norm(
      {.dtype = dtype_v<T>, .rows = 1, .width = static_cast<std::int64_t>(x.size()), .parameters = {}, .eps = eps},
      x.data(), y.data());
  return widened(y);
}

// A mean of 1e4 and a deviation of 1: float32's last place there is 1e-3, and yet 6 digits of y are right.
TEST(RowNorm, KeepsItsDigitsFarFromZero) {
  for (const std::int64_t width : {16, 1000, 100000}) {
    const auto x = draws<float>(width, 1, 1e4);
    const auto got = normalised(x, 1e-5), want = normalised(widened(x), 1e-5);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-6) << width;
  }
}

// Nor does one value far from all others take them away.
TEST(RowNorm, KeepsItsDigitsBesideAnOutlier) {
  auto x = draws<float>(1000, 1);
  x[0] = 1e6F;
  const auto got = normalised(x, 1e-5), want = normalised(widened(x), 1e-5);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6 * std::max(1.0, std::abs(want[i])));
}

// The sum of a float16 row of ones stops at 2048 in float16, and its length is infinite there.
TEST(RowNorm, N06N09N11OfALongFloat16Row) {
  std::vector<Float16> x(70000, narrow<Float16>(1.0f));
  for (const double y : normalised(x, 1e-5)) ASSERT_EQ(y, 0);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = narrow<Float16>(3.0f);
  const auto y = normalised(x, 1e-9);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], i % 2 == 0 ? 1 : -1);
}

TEST(RowNorm, GivesTheSameBitsForAnyThreads) {
  const std::int64_t rows = 999, width = 100;
  const auto x = draws<float>(rows * width, 1), grad = draws<float>(rows * width, 2), weight = draws<float>(width, 3);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 4}) {
    const ThreadLimit limit(threads);
    const RowNorm norm{
        .dtype = float32, .rows = rows, .width = width, .parameters = {{float32, weight.data()}, {}}, .eps = 1e-5};
    std::vector<float> y(x.size()), grad_x(x.size()), grad_weight(weight.size()), grad_bias(weight.size());
    kernels::row_norm(norm, x.data(), y.data());
    kernels::row_norm_backward(norm, x.data(), grad.data(),
                               {grad_x.data(), {float32, grad_weight.data()}, {float32, grad_bias.data()}});
    const std::vector<std::vector<float>> now{y, grad_x, grad_weight, grad_bias};
    if (threads == 1) first = now;
    EXPECT_EQ(now, first) << threads;
  }
}

}  // namespace
}  // namespace everyo
