#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"

namespace everyo {
namespace {

using kernels::Labels;
using kernels::LogitRows;

struct Size {
  std::int64_t rows, classes;
};
constexpr Size sizes[] = {{1, 1}, {1, 10}, {32, 10}, {33, 10}, {5, 64}, {40, 65}, {3, 5000}, {4000, 7}};

template <class T>
std::vector<T> draws(std::int64_t count, double low, double high, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>(uniform(engine));
  return values;
}
template <class T>
double wide(const std::vector<T>& v, std::int64_t i) {
  return static_cast<double>(widen(v[static_cast<std::size_t>(i)]));
}
template <class T>
std::vector<double> plain_log_softmax(const std::vector<T>& x, std::int64_t row, std::int64_t classes) {
  std::vector<double> y(static_cast<std::size_t>(classes));
  double greatest = wide(x, row * classes), sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) greatest = std::max(greatest, wide(x, row * classes + k));
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(wide(x, row * classes + k) - greatest);
  for (std::int64_t k = 0; k < classes; ++k)
    y[static_cast<std::size_t>(k)] = wide(x, row * classes + k) - greatest - std::log(sum);
  return y;
}

std::size_t kept_elements(std::int64_t rows, std::int64_t classes) {  // enough for either form
  return static_cast<std::size_t>(std::max(2 * rows, rows * (classes + 1)));
}

template <class T>
class CrossEntropy : public testing::Test {
 protected:
  using Norm = std::conditional_t<std::is_same_v<T, double>, double, float>;
  // float32: an exponential, a sum in blocks and a logarithm are good to a few ulp; halves add one rounding.
  static constexpr double relative = std::is_same_v<T, double>    ? 1e-13
                                     : std::is_same_v<T, float>   ? 2e-6
                                     : std::is_same_v<T, Float16> ? 6e-4
                                                                  : 5e-3;
};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(CrossEntropy, FloatingTypes);

TYPED_TEST(CrossEntropy, LabelsAgreeWithThePlainFormula) {
  using T = TypeParam;
  for (const auto [n, classes] : sizes) {
    const auto x = draws<T>(n * classes, -6, 6, 1), row_scale = draws<T>(n, 0.5, 2, 5);
    std::vector<std::int32_t> label(static_cast<std::size_t>(n));
    for (std::size_t r = 0; r < label.size(); ++r)
      label[r] = static_cast<std::int32_t>(r * 7 % static_cast<std::size_t>(classes));
    if (n > 3) label[2] = -100;
    const Labels labels{.dtype = int32, .data = label.data(), .ignores = true, .ignored = -100};
    const LogitRows rows{dtype_v<T>, x.data(), n, classes};
    std::vector<typename TestFixture::Norm> norms(kept_elements(n, classes));
    std::vector<T> loss(static_cast<std::size_t>(n)), grad(x.size()), scaled(x.size());
    const double total = kernels::cross_entropy(rows, labels, norms.data(), loss.data());
    kernels::cross_entropy_backward(rows, labels, norms.data(), {.all = 0.25}, grad.data());
    kernels::cross_entropy_backward(rows, labels, norms.data(), {.all = 1, .row = row_scale.data()}, scaled.data());
    double want_total = 0;
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t y = label[static_cast<std::size_t>(r)];
      const auto log_softmax = plain_log_softmax(x, r, classes);
      const double want = y < 0 ? 0 : -log_softmax[static_cast<std::size_t>(y)];
      want_total += want;
      ASSERT_NEAR(wide(loss, r), want, TestFixture::relative * (1 + want)) << n << " " << classes << " row " << r;
      for (std::int64_t k = 0; k < classes; ++k) {
        // The difference at the label loses what the probability, good to a few ulp of 1, has lost.
        const double g = y < 0 ? 0 : std::exp(log_softmax[static_cast<std::size_t>(k)]) - (k == y);
        ASSERT_NEAR(wide(grad, r * classes + k), 0.25 * g, TestFixture::relative * std::abs(g) + 1e-6);
        ASSERT_NEAR(wide(scaled, r * classes + k), wide(row_scale, r) * g,
                    TestFixture::relative * 2 * std::abs(g) + 1e-6);
      }
    }
    EXPECT_NEAR(total, want_total, (std::is_same_v<T, double> ? 1e-12 : 1e-6) * (1 + want_total));
  }
}

TYPED_TEST(CrossEntropy, SoftLabelsAgreeWithThePlainFormula) {
  using T = TypeParam;
  for (const auto [n, classes] : sizes) {
    const auto x = draws<T>(n * classes, -6, 6, 1);
    auto targets = draws<T>(n * classes, 0, 2.0 / static_cast<double>(classes), 3);
    targets[0] = T{};
    const LogitRows rows{dtype_v<T>, x.data(), n, classes};
    std::vector<typename TestFixture::Norm> norms(kept_elements(n, classes));
    std::vector<T> loss(static_cast<std::size_t>(n)), grad(x.size()), grad_targets(x.size());
    kernels::cross_entropy_soft(rows, targets.data(), norms.data(), loss.data());
    kernels::cross_entropy_soft_backward(rows, targets.data(), norms.data(), {.all = 0.5}, grad.data(),
                                         grad_targets.data());
    for (std::int64_t r = 0; r < n; ++r) {
      const auto log_softmax = plain_log_softmax(x, r, classes);
      double want = 0, mass = 0;
      for (std::int64_t k = 0; k < classes; ++k) {
        want -= wide(targets, r * classes + k) * log_softmax[static_cast<std::size_t>(k)];
        mass += wide(targets, r * classes + k);
      }
      ASSERT_NEAR(wide(loss, r), want, TestFixture::relative * (1 + want)) << n << " " << classes << " row " << r;
      for (std::int64_t k = 0; k < classes; ++k) {
        const double log_p = log_softmax[static_cast<std::size_t>(k)];
        const double g = 0.5 * (std::exp(log_p) * mass - wide(targets, r * classes + k));
        ASSERT_NEAR(wide(grad, r * classes + k), g, TestFixture::relative * std::abs(g) + 1e-6);
        ASSERT_NEAR(wide(grad_targets, r * classes + k), -0.5 * log_p, TestFixture::relative * (1 - log_p));
      }
    }
  }
}

TYPED_TEST(CrossEntropy, SameBitsForAnyThreadsAndOffset) {
  using T = TypeParam;
  const std::int64_t n = 6000, classes = 11;
  const auto x = draws<T>(n * classes, -3, 3, 1);
  std::vector<std::int64_t> label(static_cast<std::size_t>(n), 4);
  const Labels labels{.dtype = int64, .data = label.data()};
  std::vector<double> totals;
  std::vector<std::vector<T>> grads;
  for (const int threads : {1, 2, 3})
    for (const std::size_t offset : {0u, 1u, 5u}) {
      const ThreadLimit limit(threads);
      std::vector<T> moved(x.size() + 5), grad(x.size());
      std::copy(x.begin(), x.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
      const LogitRows rows{dtype_v<T>, moved.data() + offset, n, classes};
      std::vector<typename TestFixture::Norm> norms(kept_elements(n, classes));
      totals.push_back(kernels::cross_entropy(rows, labels, norms.data(), nullptr));
      kernels::cross_entropy_backward(rows, labels, norms.data(), {.all = 0.1}, grad.data());
      grads.push_back(grad);
    }
  for (std::size_t i = 1; i < totals.size(); ++i) {
    EXPECT_EQ(totals[i], totals[0]);
    EXPECT_EQ(0, std::memcmp(grads[i].data(), grads[0].data(), x.size() * sizeof(T)));
  }
}

// numerics N03: all labels ignored is loss 0, gradient 0, count 0, even where a logit is not a number.
TEST(CrossEntropyCases, N03_AllIgnored) {
  const std::vector<float> x{1, 2, NAN, 4, 5, INFINITY};
  const std::int64_t label[] = {-1, -1};
  const Labels labels{.dtype = int64, .data = label, .ignores = true, .ignored = -1};
  float norms[8], grad[6];
  EXPECT_EQ(kernels::count_labels(labels, 2), 0);
  EXPECT_EQ(kernels::cross_entropy({float32, x.data(), 2, 3}, labels, norms, nullptr), 0);
  kernels::cross_entropy_backward({float32, x.data(), 2, 3}, labels, norms, {}, grad);
  for (const float g : grad) EXPECT_EQ(g, 0);
}

// numerics N04 and N05: a label out of range is found, an ignored one may lie anywhere.
TEST(CrossEntropyCases, N04_N05_LabelsOutOfRangeAreFound) {
  const std::int64_t label[] = {0, -1, 2, -4};
  EXPECT_EQ(kernels::find_bad_label({.dtype = int64, .data = label, .ignores = true, .ignored = -1}, 4, 3), 3);
  EXPECT_EQ(kernels::find_bad_label({.dtype = int64, .data = label}, 4, 3), 1);
  const std::int32_t wide_label[] = {255, 2, 1};
  const Labels outside{.dtype = int32, .data = wide_label, .ignores = true, .ignored = 255};
  EXPECT_EQ(kernels::find_bad_label(outside, 3, 3), -1);
  EXPECT_EQ(kernels::count_labels(outside, 3), 2);
  const Labels inside{.dtype = int32, .data = wide_label, .ignores = true, .ignored = 1};
  EXPECT_EQ(kernels::find_bad_label(inside, 3, 3), 0);
}

TEST(CrossEntropyCases, SoftTargetOfZeroIgnoresAMaskedLogit) {
  const float x[] = {1, -std::numeric_limits<float>::infinity()}, targets[] = {1, 0};
  float norms[2];
  EXPECT_EQ(kernels::cross_entropy_soft({float32, x, 1, 2}, targets, norms, nullptr), 0);
}

}  // namespace
}  // namespace everyo
