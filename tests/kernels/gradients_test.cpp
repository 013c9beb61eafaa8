#include "kernels/gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/draw.h"
#include "kernels/each_target.h"

namespace everyo::kernels {
namespace {

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

TEST(GradientKernels, SquaresAreSummedInOneOrder) {
  check_squares<float>();
  check_squares<double>();
  check_squares<Float16>();
  check_squares<BFloat16>();
}

TEST(GradientKernels, ASquareThatIsNotFiniteShows) {
  for_each_target([] {
    for (const std::size_t at : {0u, 40u, 99u}) {
      auto x = draw<float>(100, 7);
      x[at] = std::nanf("");
      EXPECT_TRUE(std::isnan(sum_of_squares(float32, x.data(), 100)));
      x[at] = std::numeric_limits<float>::infinity();
      EXPECT_TRUE(std::isinf(sum_of_squares(float32, x.data(), 100)));
      EXPECT_FALSE(all_finite(float32, x.data(), 100));
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

TEST(GradientKernels, ScaleAndClipRoundOnce) {
  check_in_place<float>();
  check_in_place<double>();
  check_in_place<Float16>();
  check_in_place<BFloat16>();
}

// One pass gives what a division and a look at each element give, wherever the one that is not finite lies.
template <class T>
void check_divided() {
  using Wide = decltype(widen(T{}));
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{7}, std::int64_t{33}, several_blocks}) {
    const auto x = draw<T>(n, 7, -1000, 1000);
    for (const double divisor : {1.0, 3.0, 65536.0}) {
      for (const int threads : {1, 4}) {
        const ThreadLimit limit(threads);
        auto divided = x;
        EXPECT_TRUE(divide_in_place(dtype_v<T>, divided.data(), n, divisor));
        for (std::size_t i = 0; i < x.size(); ++i)
          ASSERT_EQ(divided[i], narrow<T>(widen(x[i]) / static_cast<Wide>(divisor))) << i;
        EXPECT_TRUE(all_finite(dtype_v<T>, x.data(), n));
        for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
          for (const std::size_t at : {std::size_t{0}, x.size() / 2, x.size() - 1}) {
            auto with_bad = x;
            with_bad[at] = narrow<T>(bad);
            EXPECT_FALSE(all_finite(dtype_v<T>, with_bad.data(), n)) << at;
            EXPECT_FALSE(divide_in_place(dtype_v<T>, with_bad.data(), n, divisor)) << at;
            if (at > 0) {
              EXPECT_EQ(with_bad[0], divided[0]) << "the others are divided all the same";
            }
          }
        }
      }
    }
  }
}

TEST(GradientKernels, DivideAndCheckInOnePass) {
  for_each_target([] {
    check_divided<float>();
    check_divided<double>();
    check_divided<Float16>();
    check_divided<BFloat16>();
  });
}

}  // namespace
}  // namespace everyo::kernels
