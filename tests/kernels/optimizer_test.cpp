#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t several_blocks = 100003;

template <class T>
std::vector<T> draw(std::int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& v : values) v = narrow<T>(uniform(engine));
  return values;
}

// One update of n elements by the kernel and by the rule in double.
template <class T>
void check_sgd(std::int64_t n, const SgdScalars& s, double tolerance) {
  auto w = draw<T>(n, 1);
  const auto g = draw<T>(n, 2), before = w;
  auto v = draw<float>(n, 3);
  const auto old = v;
  const SgdTask task{dtype_v<T>, float32, w.data(), g.data(), v.data(), n, false};
  sgd({&task, 1}, s);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double weight = widen(before[i]), grad = widen(g[i]) + s.weight_decay * weight;
    const double velocity = s.momentum * old[i] + grad;
    const double want = weight - s.lr * (s.nesterov ? grad + s.momentum * velocity : velocity);
    ASSERT_NEAR(v[i], velocity, 1e-6) << i;  // two float32 roundings of numbers up to 2
    ASSERT_NEAR(widen(w[i]), want, tolerance) << i;
  }
}

TEST(OptimizerKernels, SgdFollowsItsRule) {
  for_each_target([] {
    for (const std::int64_t n : {0, 1, 7, 33, 1000}) {
      for (const bool nesterov : {false, true}) {
        const SgdScalars s{0.1, 0.9, 0.01, nesterov};
        check_sgd<float>(n, s, 5e-7);       // a few float32 roundings near 1
        check_sgd<Float16>(n, s, 0x1p-11);  // half the distance of neighbours below 2, and float32's error
        check_sgd<BFloat16>(n, s, 0x1p-8 + 1e-6);
      }
    }
  });
}

template <class T>
void check_adam(std::int64_t n, bool amsgrad, double tolerance) {
  auto w = draw<T>(n, 1);
  const auto g = draw<T>(n, 2), before = w;
  auto mean = draw<float>(n, 3), square = draw<float>(n, 4, 0.1, 1), largest = draw<float>(n, 5, 0.1, 1);
  const auto old_mean = mean, old_square = square, old_largest = largest;
  const AdamTask task{
      dtype_v<T>, float32, w.data(), g.data(), mean.data(), square.data(), amsgrad ? largest.data() : nullptr,
      n,          0.02,    1.5};
  const AdamScalars s{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .decay_factor = 0.999};
  adam({&task, 1}, s);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double weight = widen(before[i]), grad = widen(g[i]) + s.weight_decay * weight;
    const double m = s.beta1 * old_mean[i] + (1 - s.beta1) * grad;
    double v = s.beta2 * old_square[i] + (1 - s.beta2) * grad * grad;
    ASSERT_NEAR(mean[i], m, 1e-6) << i;
    ASSERT_NEAR(square[i], v, 1e-6) << i;
    if (amsgrad) v = std::max<double>(v, old_largest[i]);
    if (amsgrad) {
      ASSERT_NEAR(largest[i], v, 1e-6) << i;
    }
    const double want = s.decay_factor * weight - task.step_size * m / (std::sqrt(v) * task.square_factor + s.eps);
    ASSERT_NEAR(widen(w[i]), want, tolerance) << i;
  }
}

TEST(OptimizerKernels, AdamFollowsItsRule) {
  for_each_target([] {
    for (const std::int64_t n : {0, 1, 7, 33, 1000}) {
      for (const bool amsgrad : {false, true}) {
        check_adam<float>(n, amsgrad, 5e-7);
        check_adam<Float16>(n, amsgrad, 0x1p-11);
        check_adam<BFloat16>(n, amsgrad, 0x1p-8 + 1e-6);
      }
    }
  });
}

template <class T>
void check_squares() {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{31}, std::int64_t{32}, std::int64_t{33},
                               std::int64_t{1000}, several_blocks}) {
    const auto x = draw<T>(n, 7);
    double want = 0;
    for (const T v : x) want += static_cast<double>(widen(v)) * static_cast<double>(widen(v));
    std::vector<std::uint64_t> bits;
    for_each_target([&] {
      for (const int threads : {1, 2, 4}) {
        const ThreadLimit limit(threads);
        const double sum = sum_of_squares(dtype_v<T>, x.data(), n);
        EXPECT_NEAR(sum, want, 1e-12 * std::max(want, 1.0)) << n;  // another order of up to 1e5 float64 additions
        bits.push_back(std::bit_cast<std::uint64_t>(sum));
      }
    });
    // Squares of float32 and halves are exact in double, so even instruction sets agree.
    if (!std::is_same_v<T, double>) {
      for (const std::uint64_t each : bits) EXPECT_EQ(each, bits[0]) << n;
    }
  }
}

TEST(OptimizerKernels, SquaresAreSummedInOneOrder) {
  check_squares<float>();
  check_squares<double>();
  check_squares<Float16>();
  check_squares<BFloat16>();
}

TEST(OptimizerKernels, ASquareThatIsNotFiniteShows) {
  for_each_target([] {
    for (const std::size_t at : {0u, 40u, 99u}) {
      auto x = draw<float>(100, 7);
      x[at] = std::nanf("");
      EXPECT_TRUE(std::isnan(sum_of_squares(float32, x.data(), 100)));
      x[at] = std::numeric_limits<float>::infinity();
      EXPECT_TRUE(std::isinf(sum_of_squares(float32, x.data(), 100)));
      EXPECT_EQ(first_nonfinite(float32, x.data(), 100), static_cast<std::int64_t>(at));
    }
  });
}

template <class T>
void check_in_place() {
  const auto x = draw<T>(several_blocks, 7);
  for_each_target([&] {
    auto scaled = x, clipped = x;
    clipped[5] = narrow<T>(std::nan(""));
    scale_in_place(dtype_v<T>, scaled.data(), several_blocks, 0.3);
    clip_in_place(dtype_v<T>, clipped.data(), several_blocks, 0.25);
    using Wide = decltype(widen(T{}));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(scaled[i], narrow<T>(widen(x[i]) * static_cast<Wide>(0.3))) << i;
      if (i == 5) continue;
      ASSERT_EQ(clipped[i], narrow<T>(std::min(std::max(widen(x[i]), Wide{-0.25}), Wide{0.25}))) << i;
    }
    EXPECT_TRUE(std::isnan(widen(clipped[5])));
  });
}

TEST(OptimizerKernels, ScaleAndClipRoundOnce) {
  check_in_place<float>();
  check_in_place<double>();
  check_in_place<Float16>();
  check_in_place<BFloat16>();
}

}  // namespace
}  // namespace everyo::kernels
