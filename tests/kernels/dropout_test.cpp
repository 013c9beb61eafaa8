#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

constexpr kernels::DropoutKey key{0x0123456789abcdefu, 0xfedcba9876543210u};

template <class T>
std::vector<T> dropped(const std::vector<T>& x, double p, kernels::DropoutKey with = key) {
  std::vector<T> y(x.size());
  kernels::dropout(dtype_v<T>, x.data(), y.data(), static_cast<std::int64_t>(x.size()), with, p);
  return y;
}

template <class T>
void follows_the_keyed_draws() {
  std::vector<T> x(20011);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = narrow<T>(static_cast<float>(i % 97) - 48.5f);
  const auto y = dropped(x, 0.25);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool kept = philox::draws(key.key, key.stream, i / 4)[i % 4] >= 0x40000000u;
    using Wide = decltype(widen(x[i]));
    const auto scaled = static_cast<std::remove_cv_t<Wide>>(widen(x[i]) * static_cast<std::remove_cv_t<Wide>>(4.0 / 3));
    const T want = kept ? narrow<T>(scaled) : T{};
    ASSERT_EQ(std::memcmp(&want, &y[i], sizeof(T)), 0) << i;
  }
}

TEST(Dropout, FollowsTheKeyedDraws) {
  for_each_target([] {
    follows_the_keyed_draws<float>();
    follows_the_keyed_draws<double>();
    follows_the_keyed_draws<Float16>();
    follows_the_keyed_draws<BFloat16>();
  });
}

TEST(Dropout, DropsTheFractionAndKeepsTheMean) {
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const std::vector<float> ones(100000, 1.0f);
    double zeros = 0, sum = 0;
    for (const float v : dropped(ones, p)) zeros += v == 0, sum += static_cast<double>(v);
    // Five standard deviations of 100,000 draws.
    const double deviation = 5 * std::sqrt(p * (1 - p) / 1e5);
    EXPECT_NEAR(zeros / 1e5, p, deviation);
    EXPECT_NEAR(sum / 1e5, 1.0, deviation / (1 - p) + 1e-6);
  }
}

TEST(Dropout, SameBitsForAnyThreadsAndAnyLength) {
  const std::vector<float> x(50003, 2.0f);
  std::vector<float> one, two;
  {
    const ThreadLimit limit(1);
    one = dropped(x, 0.5);
  }
  {
    const ThreadLimit limit(2);
    two = dropped(x, 0.5);
  }
  EXPECT_EQ(one, two);
  for (std::size_t n = 1; n < 40; ++n) {
    const auto part = dropped(std::vector<float>(n, 2.0f), 0.5);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), one.begin()));
  }
}

TEST(Dropout, OtherKeysDropOtherElements) {
  const std::vector<float> x(1000, 1.0f);
  EXPECT_NE(dropped(x, 0.5), dropped(x, 0.5, {key.key + 1, key.stream}));
  EXPECT_NE(dropped(x, 0.5), dropped(x, 0.5, {key.key, key.stream + 1}));
  EXPECT_EQ(dropped(x, 0.0), x);
}

}  // namespace
}  // namespace everyo
