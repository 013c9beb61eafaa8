#include "kernels/channel_passes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::ChannelLayout;

std::size_t size_of(const ChannelLayout& s) { return static_cast<std::size_t>(s.samples * s.rows * s.channels); }
std::size_t channels_of(const ChannelLayout& s) { return static_cast<std::size_t>(s.samples * s.channels); }

template <class T>
std::vector<T> draws(std::size_t count, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<T> values(count);
  for (T& v : values) v = narrow<T>(normal(engine));
  return values;
}

// f(element, channel of its sample)
template <class F>
void for_each(const ChannelLayout& s, F&& f) {
  const auto rows = static_cast<std::size_t>(s.rows), channels = static_cast<std::size_t>(s.channels);
  for (std::size_t i = 0; i < size_of(s); ++i) f(i, i / (rows * channels) * channels + i % channels);
}

struct Moments {
  std::vector<double> mean, variance;
};
template <class T>
Moments plain_moments(const ChannelLayout& s, const std::vector<T>& x) {
  std::vector<long double> mean(channels_of(s)), spread(channels_of(s));
  const auto value = [&](std::size_t i) { return static_cast<long double>(widen(x[i])); };
  for_each(s, [&](std::size_t i, std::size_t c) { mean[c] += value(i) / static_cast<long double>(s.rows); });
  for_each(s, [&](std::size_t i, std::size_t c) { spread[c] += (value(i) - mean[c]) * (value(i) - mean[c]); });
  Moments m;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    m.mean.push_back(static_cast<double>(mean[c]));
    m.variance.push_back(static_cast<double>(spread[c] / static_cast<long double>(s.rows)));
  }
  return m;
}
template <class T>
Moments moments(const ChannelLayout& s, const std::vector<T>& x) {
  Moments m{std::vector<double>(channels_of(s)), std::vector<double>(channels_of(s))};
  kernels::channel_moments(dtype_v<T>, s, x.data(), m.mean.data(), m.variance.data());
  return m;
}

// Few channels, whose rows are joined, and left-over rows; more channels than a tile; several blocks.
constexpr ChannelLayout layouts[] = {{1, 1, 1},   {1, 7, 1},     {1, 130, 3},   {1, 67, 8},    {2, 33, 5},
                                     {3, 50, 33}, {1, 40, 64},   {1, 129, 70},  {1, 5000, 32}, {2, 1000, 130},
                                     {5, 1, 12},  {1, 22000, 3}, {1, 70000, 1}, {1, 3000, 17}};

template <class T>
class ChannelPasses : public testing::Test {
 protected:
  // Relative error of sums of at most 32 terms of one sign in the type x is computed in; the rest is float64.
  static constexpr double sum_error = std::is_same_v<T, double> ? 1e-14 : 4e-6;
};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(ChannelPasses, FloatingTypes);

TYPED_TEST(ChannelPasses, MomentsAreThoseOfTheValues) {
  for (const ChannelLayout& s : layouts) {
    const auto x = draws<TypeParam>(size_of(s), 1, 0.5);
    const Moments want = plain_moments(s, x);
    for_each_target([&] {
      const Moments got = moments(s, x);
      for (std::size_t c = 0; c < got.mean.size(); ++c) {
        ASSERT_NEAR(got.mean[c], want.mean[c], this->sum_error) << s.rows << " x " << s.channels;
        ASSERT_NEAR(got.variance[c], want.variance[c], this->sum_error * want.variance[c]);
      }
    });
  }
}

// A mean of 1e4 with a deviation of 1: plain sums of squares in float32 would have no digit left.
TEST(ChannelMoments, KeepTheirDigitsFarFromZero) {
  for (const ChannelLayout& s : {ChannelLayout{1, 4096, 3}, {1, 65536, 16}, {4, 1024, 40}}) {
    const auto x = draws<float>(size_of(s), 2, 1e4);
    const Moments got = moments(s, x), want = plain_moments(s, x);
    for (std::size_t c = 0; c < got.mean.size(); ++c) {
      ASSERT_NEAR(got.mean[c], want.mean[c], 1e-6);  // of a deviation of 1
      ASSERT_NEAR(got.variance[c], want.variance[c], 2e-6 * want.variance[c]);
    }
  }
}

// Nor when the first row, about which the sums are taken, is itself far from all others: its own stretch of 32 rows
// then loses a factor of 33 of float32's precision, the others nothing.
TEST(ChannelMoments, KeepTheirDigitsBesideAnOutlier) {
  const ChannelLayout s{1, 30000, 4};
  auto x = draws<float>(size_of(s), 3);
  for (std::size_t c = 0; c < 4; ++c) x[c] = 3000;
  const Moments got = moments(s, x), want = plain_moments(s, x);
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(got.mean[c], want.mean[c], 1e-6);
    EXPECT_NEAR(got.variance[c], want.variance[c], 33 * 6e-7 * want.variance[c]);
  }
}

// float16 counts to 2048 by ones and ends at 65504.
TEST(ChannelMoments, N06N09OfMoreFloat16RowsThanFloat16Counts) {
  const ChannelLayout s{1, 100000, 2};
  std::vector<Float16> x(size_of(s), narrow<Float16>(1.0f));
  Moments got = moments(s, x);
  EXPECT_EQ(got.mean, (std::vector<double>{1, 1}));
  EXPECT_EQ(got.variance, (std::vector<double>{0, 0}));
  for (std::size_t i = 0; i < x.size(); i += 4) x[i] = x[i + 1] = narrow<Float16>(3.0f);  // every other row
  got = moments(s, x);
  EXPECT_EQ(got.mean, (std::vector<double>{2, 2}));
  EXPECT_EQ(got.variance, (std::vector<double>{1, 1}));
}

// ---- the passes that read the moments -------------------------------------------------------------------------------

template <class T>
struct Problem {
  explicit Problem(const ChannelLayout& layout) : s(layout) {
    x = draws<T>(size_of(s), 4, 3);
    grad = draws<T>(size_of(s), 5);
    mean = draws<double>(channels_of(s), 6, 3, 0.1);
    scale = draws<double>(channels_of(s), 7);
    shift = draws<double>(channels_of(s), 8);
    grad_scale = draws<double>(channels_of(s), 9);
    x_scale = draws<double>(channels_of(s), 10);
    offset = draws<double>(channels_of(s), 11);
  }
  [[nodiscard]] kernels::ChannelMap map(bool relu) const { return {mean.data(), scale.data(), shift.data(), relu}; }
  [[nodiscard]] double at(const std::vector<T>& v, std::size_t i) const { return static_cast<double>(widen(v[i])); }
  [[nodiscard]] double y(std::size_t i, std::size_t c) const { return scale[c] * (at(x, i) - mean[c]) + shift[c]; }

  ChannelLayout s;
  std::vector<T> x, grad;
  std::vector<double> mean, scale, shift, grad_scale, x_scale, offset;
};

TYPED_TEST(ChannelPasses, ApplyScalesShiftsAndCuts) {
  using T = TypeParam;
  const FloatInfo info = finfo(dtype_v<T>);
  for (const ChannelLayout& s : layouts) {
    const Problem<T> p(s);
    for_each_target([&] {
      for (const bool relu : {false, true}) {
        std::vector<T> y(p.x.size());
        kernels::channel_apply(dtype_v<T>, s, p.map(relu), p.x.data(), y.data());
        for_each(s, [&](std::size_t i, std::size_t c) {
          const double want = relu ? std::max(0.0, p.y(i, c)) : p.y(i, c);
          // Half a unit of the result's rounding, and a few of the arithmetic's, whose terms are up to 20.
          const double error = info.eps * std::abs(want) + (std::is_same_v<T, double> ? 1e-14 : 6e-6);
          ASSERT_NEAR(p.at(y, i), want, error) << i;
        });
      }
    });
  }
}

TYPED_TEST(ChannelPasses, GradientSumsCountWhatReLULetThrough) {
  using T = TypeParam;
  for (const ChannelLayout& s : layouts) {
    const Problem<T> p(s);
    for_each_target([&] {
      for (const bool relu : {false, true}) {
        std::vector<double> sum(channels_of(s)), product(channels_of(s));
        kernels::channel_gradient_sums(dtype_v<T>, s, p.map(relu), p.x.data(), p.grad.data(), sum.data(),
                                       product.data());
        std::vector<double> want(sum.size()), want_product(sum.size()), size(sum.size()), product_size(sum.size());
        for_each(s, [&](std::size_t i, std::size_t c) {
          if (relu && p.y(i, c) <= 0) return;
          const double g = p.at(p.grad, i), term = g * (p.at(p.x, i) - p.mean[c]);
          want[c] += g, size[c] += std::abs(g);
          want_product[c] += term, product_size[c] += std::abs(term);
        });
        for (std::size_t c = 0; c < sum.size(); ++c) {
          ASSERT_NEAR(sum[c], want[c], this->sum_error * (size[c] + 1e-3)) << s.rows << " x " << s.channels;
          ASSERT_NEAR(product[c], want_product[c], this->sum_error * (product_size[c] + 1e-3));
        }
        if (relu) continue;
        std::vector<double> alone(sum.size());  // without x: the same bits
        kernels::channel_gradient_sums(dtype_v<T>, s, p.map(false), nullptr, p.grad.data(), alone.data(), nullptr);
        ASSERT_EQ(alone, sum);
      }
    });
  }
}

TYPED_TEST(ChannelPasses, GradientIsLinearInBoth) {
  using T = TypeParam;
  const FloatInfo info = finfo(dtype_v<T>);
  for (const ChannelLayout& s : layouts) {
    const Problem<T> p(s);
    for_each_target([&] {
      for (const bool relu : {false, true}) {
        for (const bool with_x : {false, true}) {
          std::vector<T> grad_x = p.grad;  // in place
          const kernels::ChannelSlopes slopes{p.grad_scale.data(), with_x ? p.x_scale.data() : nullptr,
                                              with_x ? p.offset.data() : nullptr};
          kernels::channel_gradient(dtype_v<T>, s, p.map(relu), slopes, p.x.data(), grad_x.data(), grad_x.data());
          for_each(s, [&](std::size_t i, std::size_t c) {
            const double g = relu && p.y(i, c) <= 0 ? 0 : p.at(p.grad, i);
            double want = p.grad_scale[c] * g;
            if (with_x) want += p.x_scale[c] * (p.at(p.x, i) - p.mean[c]) + p.offset[c];
            const double error = info.eps * std::abs(want) + (std::is_same_v<T, double> ? 1e-14 : 6e-6);
            ASSERT_NEAR(p.at(grad_x, i), want, error) << i;
          });
        }
      }
    });
  }
}

// ReLU sees y as it is stored: what rounds to 0 is cut in the backward, what rounds to the least number is not.
template <class T>
void expect_cut_below_half_a_subnormal() {
  const double least = finfo(dtype_v<T>).smallest_subnormal;
  const std::vector<T> x(2), grad(2, narrow<T>(1.0f));
  const std::vector<double> mean(2), scale(2, 1.0), shift{least / 2, least * 0.75};
  std::vector<T> grad_x(2);
  const kernels::ChannelMap map{mean.data(), scale.data(), shift.data(), true};
  kernels::channel_gradient(dtype_v<T>, {1, 1, 2}, map, {scale.data(), nullptr, nullptr}, x.data(), grad.data(),
                            grad_x.data());
  EXPECT_EQ(widen(grad_x[0]), 0);
  EXPECT_EQ(widen(grad_x[1]), 1);
}
TEST(ChannelGradient, CutsWhatRoundsToZero) {
  expect_cut_below_half_a_subnormal<Float16>();
  expect_cut_below_half_a_subnormal<BFloat16>();
}

TEST(ChannelSums, GiveTheSameBitsForAnyThreads) {
  const ChannelLayout s{3, 9001, 24};
  const Problem<float> p(s);
  std::vector<std::vector<double>> first;
  for (const int threads : {1, 2, 4}) {
    const ThreadLimit limit(threads);
    const Moments m = moments(s, p.x);
    std::vector<double> sum(channels_of(s)), product(channels_of(s));
    kernels::channel_gradient_sums(float32, s, p.map(true), p.x.data(), p.grad.data(), sum.data(), product.data());
    const std::vector<std::vector<double>> now{m.mean, m.variance, sum, product};
    if (threads == 1) first = now;
    EXPECT_EQ(now, first) << threads;
  }
}

}  // namespace
}  // namespace everyo
