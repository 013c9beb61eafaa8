#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "everyo/half.h"
#include "everyo/isa.h"
#include "kernels/draw.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

// What products of halves promise beyond matmul_test.cpp's laws, on whatever instruction set runs them.
namespace everyo::kernels {
namespace {

template <class T>
class HalfMatmul : public testing::Test {};
using Halves = testing::Types<Float16, BFloat16>;
struct HalfName {
  template <class T>
  static std::string GetName(int) {
    return std::string(name_of(dtype_v<T>));
  }
};
TYPED_TEST_SUITE(HalfMatmul, Halves, HalfName);

template <class T>
T half(float value) {
  return narrow<T>(value);
}
template <class T>
T& at(std::vector<T>& values, std::int64_t i) {
  return values[static_cast<std::size_t>(i)];
}

// One row of A times one column of B.
template <class T>
float dot(std::vector<T> a, std::vector<T> b) {
  T c{};
  matmul<T>({1, 1, static_cast<std::int64_t>(a.size())}, a.data(), b.data(), &c);
  return to_float(c);
}

// Several blocks of rows, of columns and of K; rows whose distance is a multiple of a page.
TYPED_TEST(HalfMatmul, AgreesWithAFloat64SumWhereItIsCutInBlocks) {
  using T = TypeParam;
  const std::int64_t shapes[][3] = {{250, 100, 2500}, {40, 300, 2048}, {40, 70, 4096}, {300, 40, 33}};
  int form = 0;
  for (const auto& [m, n, k] : shapes) {
    const MatmulProblem p{m, n, k, form % 2 == 1, form / 2 == 1};
    ++form;
    const auto a = draw<T>(m * k, 1), b = draw<T>(k * n, 2);
    std::vector<T> c(static_cast<std::size_t>(m * n));
    matmul<T>(p, a.data(), b.data(), c.data());
    for (std::int64_t row = 0; row < m; row += 3) {
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0, magnitude = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double x = to_float(a[static_cast<std::size_t>(p.transpose_a ? i * m + row : row * k + i)]);
          const double y = to_float(b[static_cast<std::size_t>(p.transpose_b ? column * k + i : i * n + column)]);
          sum += x * y;
          magnitude += std::abs(x * y);
        }
        // K roundings in float32, one in T.
        const double tolerance =
            static_cast<double>(k) * finfo(float32).eps * magnitude + finfo(dtype_v<T>).eps * std::abs(sum);
        ASSERT_NEAR(to_float(at(c, row * n + column)), sum, tolerance) << m << "x" << n << "x" << k << " " << row;
      }
    }
  }
}

TYPED_TEST(HalfMatmul, WidenedHasTheValuesOfTheHalves) {
  using T = TypeParam;
  const std::int64_t shapes[][3] = {{5, 7, 3}, {32, 10, 64}, {70, 90, 100}, {130, 70, 51}, {19, 9, 2100}, {3, 4, 0}};
  for (const auto& [m, n, k] : shapes) {
    for (int form = 0; form < 4; ++form) {
      const MatmulProblem p{m, n, k, form % 2 == 1, form / 2 == 1};
      const auto a = draw<T>(m * k + 1, 1), b = draw<T>(k * n + 1, 2);
      std::vector<T> halves(static_cast<std::size_t>(m * n));
      std::vector<float> wide(halves.size() + 1, 7.0f);
      matmul<T>(p, a.data(), b.data(), halves.data());
      matmul_widened<T>(p, a.data(), b.data(), wide.data());
      for (std::size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(wide[i], to_float(halves[i])) << m << " " << form;
      EXPECT_EQ(wide.back(), 7.0f);
    }
  }
}

// A NaN enters its own row and column of C and nothing else: what lies beside a row in memory is never multiplied.
TYPED_TEST(HalfMatmul, KeepsANaNToItsRowAndColumn) {
  using T = TypeParam;
  const T nan = half<T>(std::numeric_limits<float>::quiet_NaN());
  for (const std::int64_t k : {1, 2, 31, 64, 65}) {
    for (const std::int64_t n : {1, 15, 33, 64}) {
      for (const std::int64_t m : {3, 29, 40}) {
        for (int form = 0; form < 4; ++form) {
          const MatmulProblem p{m, n, k, form % 2 == 1, form / 2 == 1};
          auto a = draw<T>(m * k, 1), b = draw<T>(k * n, 2);
          at(a, p.transpose_a ? m - 1 : (m - 1) * k) = nan;  // the first element of the last row
          at(b, p.transpose_b ? (n - 1) * k : n - 1) = nan;  // and of the last column
          std::vector<T> c(static_cast<std::size_t>(m * n));
          matmul<T>(p, a.data(), b.data(), c.data());
          for (std::int64_t i = 0; i < m * n; ++i) {
            const bool hit = i / n == m - 1 || i % n == n - 1;
            ASSERT_EQ(std::isnan(to_float(at(c, i))), hit) << m << "x" << n << "x" << k << " form " << form << " " << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(HalfMatmul, FollowsTheRulesOfInfinity) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  const T one = half<T>(1), inf = half<T>(infinity), less = half<T>(-infinity), zero{};
  EXPECT_EQ(dot<T>({one, inf, one}, {one, one, one}), infinity);
  EXPECT_EQ(dot<T>({one, inf}, {one, half<T>(-1)}), -infinity);
  EXPECT_TRUE(std::isnan(dot<T>({inf, less}, {one, one})));
  EXPECT_TRUE(std::isnan(dot<T>({inf, one}, {zero, one})));
  const T largest = half<T>(static_cast<float>(finfo(dtype_v<T>).max));
  EXPECT_EQ(dot<T>({largest, largest}, {one, one}), infinity);
  EXPECT_EQ(dot<T>({largest, largest}, {half<T>(-1), half<T>(-1)}), -infinity);
}

// Only the finished sum is rounded, so one that would leave float16 on its way and comes back is right.
TEST(HalfMatmulOfFloat16, OverflowsWhereTheRoundedSumDoes) {
  const auto h = [](float value) { return to_float16(value); };
  EXPECT_EQ(dot<Float16>({h(60000), h(60000), h(60000)}, {h(1), h(1), h(-1)}), 60000.0f);
  EXPECT_EQ(dot<Float16>({h(65504), h(15)}, {h(1), h(1)}), 65504.0f);  // 65519 rounds down
  EXPECT_EQ(dot<Float16>({h(65504), h(16)}, {h(1), h(1)}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(dot<Float16>({h(300)}, {h(-300)}), -std::numeric_limits<float>::infinity());
}

TEST(HalfMatmulOfFloat16, KeepsSubnormals) {
  const auto h = [](float value) { return to_float16(value); };
  EXPECT_EQ(dot<Float16>({h(0x1p-24f), h(0)}, {h(1), h(0)}), 0x1p-24f);
  EXPECT_EQ(dot<Float16>({h(0x1p-24f), h(0x1p-24f)}, {h(1024), h(1024)}), 0x1p-13f);
  EXPECT_EQ(dot<Float16>({h(0x1p-12f)}, {h(0x1p-12f)}), 0x1p-24f);
  EXPECT_EQ(dot<Float16>({h(0x1p-13f)}, {h(0x1p-13f)}), 0.0f);  // 2^-26: below half of the smallest
}

// The instructions of avx512_bf16 take float32's subnormals (below 2^-126) for zeros, as operands and as sums.
TEST(HalfMatmulOfBFloat16, SubnormalsAreZerosWithItsInstructions) {
  const auto h = [](float value) { return to_bfloat16(value); };
  const bool zeros = used_isa() >= Isa::avx512_bf16;
  EXPECT_EQ(dot<BFloat16>({h(0x1p-130f)}, {h(0x1p100f)}), zeros ? 0 : 0x1p-30f);
  EXPECT_EQ(dot<BFloat16>({h(0x1p100f)}, {h(0x1p-130f)}), zeros ? 0 : 0x1p-30f);
  EXPECT_EQ(dot<BFloat16>({h(0x1p-65f)}, {h(0x1p-65f)}), zeros ? 0 : 0x1p-130f);
  // From the smallest normal number on nothing is lost.
  EXPECT_EQ(dot<BFloat16>({h(0x1p-126f)}, {h(1)}), 0x1p-126f);
  EXPECT_EQ(dot<BFloat16>({h(0x1p-63f)}, {h(-0x1p-63f)}), -0x1p-126f);
}

// The epilogue is no part of the instruction: what is there stays as it is.
TEST(HalfMatmulOfBFloat16, AddsToSubnormals) {
  const BFloat16 zero{}, small = to_bfloat16(0x1p-130f);
  BFloat16 c = small;
  matmul<BFloat16>({1, 1, 1, false, false, true}, &zero, &zero, &c);
  EXPECT_EQ(c.bits, small.bits);
  matmul<BFloat16>({1, 1, 1}, &zero, &zero, &c, {&small, true});
  EXPECT_EQ(c.bits, small.bits);
}

}  // namespace
}  // namespace everyo::kernels
