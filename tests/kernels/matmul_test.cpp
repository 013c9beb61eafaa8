#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/draw.h"
#include "kernels/parallel.h"

namespace everyo::kernels {
namespace {

template <class T>
double real(T value) {
  return static_cast<double>(widen(value));
}
double unit_of(DType dtype) { return finfo(dtype).eps; }

// The product in float64, and the sum of magnitudes that bounds its rounding.
struct Exact {
  double value, magnitude;
};
template <class T>
Exact exact(const MatmulProblem& p, const std::vector<T>& a, const std::vector<T>& b, std::int64_t m, std::int64_t n) {
  Exact e{0, 0};
  for (std::int64_t k = 0; k < p.k; ++k) {
    const double x = real(a[static_cast<std::size_t>(p.transpose_a ? k * p.m + m : m * p.k + k)]);
    const double y = real(b[static_cast<std::size_t>(p.transpose_b ? n * p.k + k : k * p.n + n)]);
    e.value += x * y;
    e.magnitude += std::abs(x * y);
  }
  return e;
}

constexpr std::int64_t guard = 24;  // elements around C that must stay as they are

template <class T>
void check(const MatmulProblem& p, bool with_bias, bool relu) {
  SCOPED_TRACE(testing::Message() << name_of(dtype_v<T>) << " " << p.m << "x" << p.n << "x" << p.k << " "
                                  << p.transpose_a << p.transpose_b << p.accumulate << with_bias << relu);
  const auto a = draw<T>(p.m * p.k, 1), b = draw<T>(p.k * p.n, 2), before = draw<T>(p.m * p.n + 2 * guard, 3);
  const auto bias = draw<T>(p.n, 4);
  auto c = before;
  matmul<T>(p, a.data(), b.data(), c.data() + guard, {with_bias ? bias.data() : nullptr, relu});
  const double wide = std::is_same_v<T, double> ? unit_of(float64) : unit_of(float32);
  for (std::int64_t i = 0; i < guard; ++i) {
    ASSERT_EQ(real(c[static_cast<std::size_t>(i)]), real(before[static_cast<std::size_t>(i)]));
    ASSERT_EQ(real(c[c.size() - 1 - static_cast<std::size_t>(i)]),
              real(before[c.size() - 1 - static_cast<std::size_t>(i)]));
  }
  for (std::int64_t m = 0; m < p.m; ++m) {
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto at = static_cast<std::size_t>(guard + m * p.n + n);
      const Exact e = exact(p, a, b, m, n);
      double expected = e.value;
      if (p.accumulate) expected += real(before[at]);
      if (with_bias) expected += real(bias[static_cast<std::size_t>(n)]);
      if (relu) expected = std::max(expected, 0.0);
      // K roundings of the sum, in float32 or float64, and at most two of the result in T (of values below
      // magnitude + 1).
      const double tolerance =
          static_cast<double>(p.k) * wide * e.magnitude + 2 * unit_of(dtype_v<T>) * (std::abs(e.value) + 1);
      ASSERT_NEAR(real(c[at]), expected, tolerance) << "at " << m << ", " << n;
    }
  }
}

// Every path: tails in each size, one and several blocks of K, the small kernel, oneDNN and the packed kernel.
constexpr std::int64_t sizes[][3] = {
    {1, 1, 1},    {2, 3, 4},    {5, 7, 3},    {8, 16, 32},  {32, 10, 64},  {32, 32, 64}, {13, 33, 17},  {14, 32, 16},
    {31, 65, 40}, {64, 64, 64}, {1, 200, 70}, {200, 1, 70}, {70, 90, 100}, {57, 40, 70}, {19, 9, 2100}, {130, 70, 51}};

template <class T>
class Matmul : public testing::Test {};
using Elements = testing::Types<float, double, Float16, BFloat16>;
struct ElementName {
  template <class T>
  static std::string GetName(int) {
    return std::string(name_of(dtype_v<T>));
  }
};
TYPED_TEST_SUITE(Matmul, Elements, ElementName);

TYPED_TEST(Matmul, AgreesWithAFloat64SumInEveryForm) {
  for (const auto& [m, n, k] : sizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        check<TypeParam>({m, n, k, ta, tb, false}, false, false);
        check<TypeParam>({m, n, k, ta, tb, true}, false, false);
        check<TypeParam>({m, n, k, ta, tb, false}, true, (m + n) % 2 == 0);
      }
    }
  }
}

TYPED_TEST(Matmul, AnEmptySumIsTheBias) {
  using T = TypeParam;
  const std::vector<T> bias = {narrow<T>(1.5f), narrow<T>(-2.0f)};
  std::vector<T> c(4, narrow<T>(9.0f));
  const T none{};
  matmul<T>({2, 2, 0}, &none, &none, c.data(), {bias.data(), true});
  EXPECT_EQ(real(c[0]), 1.5);
  EXPECT_EQ(real(c[3]), 0);
  matmul<T>({2, 2, 0, false, false, true}, &none, &none, c.data());
  EXPECT_EQ(real(c[2]), 1.5);
  matmul<T>({0, 2, 5}, &none, &none, c.data());
  matmul<T>({2, 0, 5}, &none, &none, c.data());
}

template <class T>
std::vector<T> product(const MatmulProblem& p, int threads, std::size_t offset,
                       const MatmulEpilogue<T>& epilogue = {}) {
  const ThreadLimit limit(threads);
  auto a = draw<T>(p.m * p.k, 1), b = draw<T>(p.k * p.n, 2), c = draw<T>(p.m * p.n, 3);
  for (auto* operand : {&a, &b, &c}) operand->insert(operand->begin(), offset, T{});
  matmul<T>(p, a.data() + offset, b.data() + offset, c.data() + offset, epilogue);
  c.erase(c.begin(), c.begin() + static_cast<std::ptrdiff_t>(offset));
  return c;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TYPED_TEST(Matmul, GivesTheSameBitsForAnyThreadsAndAlignment) {
  using T = TypeParam;
  const std::int64_t shapes[][3] = {{300, 130, 90}, {64, 10, 4096},  {32, 256, 200},
                                    {16, 16, 9000}, {128, 256, 128}, {33, 31, 65}};
  for (const auto& [m, n, k] : shapes) {
    for (int form = 0; form < 4; ++form) {
      const MatmulProblem p{m, n, k, form == 1 || form == 3, form == 2, form == 3};
      const auto one = product<T>(p, 1, 0);
      for (const int threads : {2, 3, 4, 8})
        EXPECT_TRUE(same_bits(product<T>(p, threads, 0), one)) << m << " " << form << " " << threads;
      for (const std::size_t offset : {1u, 3u, 5u})
        EXPECT_TRUE(same_bits(product<T>(p, 2, offset), one)) << m << " " << form << " offset " << offset;
    }
  }
}

// The epilogue rounds as separate steps do: the same bits as product, then bias, then relu.
TYPED_TEST(Matmul, RoundsTheEpilogueAsSeparateStepsDo) {
  using T = TypeParam;
  const std::int64_t shapes[][3] = {{32, 10, 64}, {32, 33, 64}, {120, 70, 90}, {256, 130, 200}, {64, 64, 2048}};
  for (const auto& [m, n, k] : shapes) {
    for (const bool transposed : {false, true}) {
      const MatmulProblem p{m, n, k, false, transposed, false};
      const auto bias = draw<T>(n, 5);
      const auto fused = product<T>(p, 2, 0, {bias.data(), true});
      auto steps = product<T>(p, 2, 0);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        auto value = widen(narrow<T>(widen(steps[i]) + widen(bias[i % bias.size()])));
        if (value < 0) value = 0;
        steps[i] = narrow<T>(value);
      }
      EXPECT_TRUE(same_bits(fused, steps)) << m << "x" << n << "x" << k;
    }
  }
}

TYPED_TEST(Matmul, AddsToWhatIsThereAsASeparateStepDoes) {
  using T = TypeParam;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 32, 32}, {256, 128, 128}, {60, 20, 2100}}) {
    for (const bool ta : {false, true}) {
      auto steps = product<T>({m, n, k, ta, false, false}, 2, 0);
      const auto before = draw<T>(m * n, 3);
      for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = narrow<T>(widen(before[i]) + widen(steps[i]));
      EXPECT_TRUE(same_bits(product<T>({m, n, k, ta, false, true}, 2, 0), steps)) << m << ta;
    }
  }
}

TYPED_TEST(Matmul, PassesNaNAndInfinityOn) {
  using T = TypeParam;
  for (const std::int64_t size : {8, 80}) {
    auto a = draw<T>(size * size, 1), b = draw<T>(size * size, 2);
    a[static_cast<std::size_t>(2 * size)] = narrow<T>(std::numeric_limits<float>::quiet_NaN());
    a[static_cast<std::size_t>(3 * size)] = narrow<T>(std::numeric_limits<float>::infinity());
    const std::vector<T> bias(static_cast<std::size_t>(size));
    std::vector<T> c(static_cast<std::size_t>(size * size));
    matmul<T>({size, size, size}, a.data(), b.data(), c.data(), {bias.data(), true});
    EXPECT_TRUE(std::isnan(real(c[static_cast<std::size_t>(2 * size)])));
    EXPECT_FALSE(std::isfinite(real(c[static_cast<std::size_t>(3 * size)])) &&
                 real(c[static_cast<std::size_t>(3 * size)]) > 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(2 * size); ++i) ASSERT_TRUE(std::isfinite(real(c[i])));
  }
}

TYPED_TEST(Matmul, BatchesBroadcastByStride) {
  using T = TypeParam;
  // a [2, 1, M, K], b [3, K, N] -> c [2, 3, M, N]
  const MatmulProblem p{5, 9, 12};
  BatchStrides batch;
  batch.rank = 2;
  batch.sizes[0] = 2, batch.sizes[1] = 3;
  batch.a[0] = p.m * p.k;
  batch.b[1] = p.k * p.n;
  const auto a = draw<T>(2 * p.m * p.k, 1), b = draw<T>(3 * p.k * p.n, 2);
  std::vector<T> c(static_cast<std::size_t>(6 * p.m * p.n)), one(static_cast<std::size_t>(p.m * p.n));
  for (const int threads : {1, 4}) {
    const ThreadLimit limit(threads);
    matmul_batched<T>(p, batch, a.data(), b.data(), c.data());
    for (std::int64_t i = 0; i < 6; ++i) {
      matmul<T>(p, a.data() + i / 3 * p.m * p.k, b.data() + i % 3 * p.k * p.n, one.data());
      EXPECT_EQ(std::memcmp(one.data(), c.data() + i * p.m * p.n, one.size() * sizeof(T)), 0) << i;
    }
  }
}

// A float16 product rounds once from a float32 sum: 2048 + 1 + 1 would stay 2048 in float16 steps.
TEST(MatmulOfHalves, AccumulatesInFloat32) {
  std::vector<Float16> a(3, to_float16(1.0f)), b = {to_float16(2048), to_float16(1), to_float16(1)}, c(1);
  matmul<Float16>({1, 1, 3}, a.data(), b.data(), c.data());
  EXPECT_EQ(to_float(c[0]), 2050.0f);
}

TEST(MatmulKernels, WorkInParallelRegionsOnSeveralThreads) {
  const MatmulProblem p{96, 80, 70};
  const auto expected = product<float>(p, 1, 0);
  const ThreadLimit limit(4);
  std::vector<int> same(8);
  parallel_for(8, 1, [&](std::int64_t i, std::int64_t) {
    same[static_cast<std::size_t>(i)] = same_bits(product<float>(p, 4, 0), expected);
  });
  EXPECT_EQ(std::accumulate(same.begin(), same.end(), 0), 8);
}

}  // namespace
}  // namespace everyo::kernels
