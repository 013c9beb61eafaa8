#include "kernels/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "everyo/half.h"
#include "kernels/each_target.h"

// Held to a plain loop over the ranks in order, bit by bit, on every instruction set.
namespace everyo {
namespace {

using kernels::combine;

template <class T>
using Parts = std::vector<std::vector<T>>;

template <class T>
std::vector<T> combined(ReduceOp how, const Parts<T>& parts, std::span<const double> weights = {}) {
  std::vector<const void*> pointers;
  for (const auto& part : parts) pointers.push_back(part.data());
  std::vector<T> out(parts[0].size(), T{});
  combine(how, dtype_v<T>, pointers, out.data(), static_cast<std::int64_t>(out.size()), weights);
  return out;
}

// What one element must be: sums in float64 in rank order, one rounding.
template <class T>
T right_sum(const Parts<T>& parts, std::size_t i, ReduceOp how, std::span<const double> weights) {
  double sum = -0.0, total = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (!weights.empty() && weights[r] == 0) continue;
    const double weight = weights.empty() ? 1 : weights[r];
    sum += weight * static_cast<double>(widen(parts[r][i]));
    total += weight;
  }
  return narrow<T>(how == ReduceOp::mean ? sum / total : sum);
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
template <class T>
bool is_nan(T x) {
  return std::isnan(static_cast<double>(widen(x)));
}

// Any bits: tiny, huge, subnormal, infinite, NaN.
template <class T>
Parts<T> any_bits(std::size_t ranks, std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  Parts<T> parts(ranks, std::vector<T>(n));
  for (auto& part : parts)
    for (T& x : part) {
      const std::uint64_t bits = random();
      std::memcpy(static_cast<void*>(&x), &bits, sizeof(T));
    }
  return parts;
}
// Numbers of one size, whose sums are rounded.
template <class T>
Parts<T> near_one(std::size_t ranks, std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(-3, 3);
  Parts<T> parts(ranks, std::vector<T>(n));
  for (auto& part : parts)
    for (T& x : part) x = narrow<T>(draw(random));
  return parts;
}
// About the smallest numbers of T, where a rounding of a rounding would show.
template <class T>
Parts<T> near_nothing(std::size_t ranks, std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Parts<T> parts(ranks, std::vector<T>(n));
  for (auto& part : parts)
    for (T& x : part) x.bits = static_cast<std::uint16_t>((random() & 0x8000u) | (random() & 0xffu));
  return parts;
}

template <class T>
void expect_sums(const Parts<T>& parts, ReduceOp how, std::span<const double> weights = {}) {
  const std::vector<T> found = combined(how, parts, weights);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const T right = right_sum(parts, i, how, weights);
    ASSERT_TRUE(same_bits(found[i], right) || (is_nan(found[i]) && is_nan(right)))
        << name_of(dtype_v<T>) << ' ' << parts.size() << " parts of " << found.size() << ", element " << i << ": "
        << static_cast<double>(widen(found[i])) << ", not " << static_cast<double>(widen(right));
  }
}

template <class T>
class CombineFloats : public ::testing::Test {};
using Floats = ::testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(CombineFloats, Floats);

TYPED_TEST(CombineFloats, SumsInFloat64InOrderAtEverySize) {
  for_each_target([] {
    for (const std::size_t ranks : {1u, 2u, 3u, 8u})
      for (std::size_t n = 0; n <= 100; ++n) {
        const auto parts = near_one<TypeParam>(ranks, n, static_cast<unsigned>(n));
        expect_sums(parts, ReduceOp::sum);
        expect_sums(parts, ReduceOp::mean);
      }
  });
}

TYPED_TEST(CombineFloats, SumsAnyBits) {
  for_each_target([] {
    for (const std::size_t ranks : {1u, 2u, 5u}) {
      const auto parts = any_bits<TypeParam>(ranks, 20'000, static_cast<unsigned>(ranks));
      const std::vector<double> weights = {3, 0.1, 7, 0, 1e-3};
      expect_sums(parts, ReduceOp::sum);
      expect_sums(parts, ReduceOp::mean);
      expect_sums(parts, ReduceOp::mean, std::span(weights).first(ranks));
    }
  });
}

TYPED_TEST(CombineFloats, WeighsPartsByTheirRows) {
  for_each_target([] {
    const double weights[] = {22, 0, 21, 1.0 / 3};
    for (const std::size_t n : {1u, 7u, 33u, 1000u}) expect_sums(near_one<TypeParam>(4, n, 1), ReduceOp::mean, weights);
  });
}

TYPED_TEST(CombineFloats, DoesNotLookAtAPartOfWeightZero) {
  for_each_target([] {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      auto parts = near_one<TypeParam>(3, 50, 2);
      std::ranges::fill(parts[1], narrow<TypeParam>(bad));
      expect_sums(parts, ReduceOp::mean, std::vector<double>{4, 0, 2});
      for (const TypeParam x : combined(ReduceOp::mean, parts, std::vector<double>{4, 0, 2})) EXPECT_FALSE(is_nan(x));
    }
    // Without any weight nothing is written.
    const auto parts = near_one<TypeParam>(2, 9, 3);
    for (const TypeParam x : combined(ReduceOp::mean, parts, std::vector<double>{0, 0}))
      EXPECT_TRUE(same_bits(x, TypeParam{}));
  });
}

TYPED_TEST(CombineFloats, WritesOverOneOfTheParts) {
  for_each_target([] {
    for (const ReduceOp how : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max})
      for (std::size_t over = 0; over < 3; ++over) {
        auto parts = near_one<TypeParam>(3, 77, 4);
        const std::vector<TypeParam> apart = combined(how, parts);
        const void* const pointers[] = {parts[0].data(), parts[1].data(), parts[2].data()};
        combine(how, dtype_v<TypeParam>, pointers, parts[over].data(), 77);
        for (std::size_t i = 0; i < 77; ++i) EXPECT_TRUE(same_bits(parts[over][i], apart[i])) << i;
      }
  });
}

TYPED_TEST(CombineFloats, ANaNWinsInMinAndMax) {
  for_each_target([] {
    const auto value = [](double x) { return narrow<TypeParam>(x); };
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    const Parts<TypeParam> parts = {{value(1), value(nan), value(2), value(-inf), value(5)},
                                    {value(3), value(4), value(nan), value(0), value(5)},
                                    {value(2), value(inf), value(1), value(7), value(5)}};
    const double least[] = {1, nan, nan, -inf, 5}, most[] = {3, nan, nan, 7, 5};
    const auto min = combined(ReduceOp::min, parts), max = combined(ReduceOp::max, parts);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(same_bits(min[i], value(least[i])) || (is_nan(min[i]) && std::isnan(least[i]))) << i;
      EXPECT_TRUE(same_bits(max[i], value(most[i])) || (is_nan(max[i]) && std::isnan(most[i]))) << i;
    }
  });
}

// The bits of one of the parts: the first NaN, or the first of the largest or smallest, -0 being no less than 0.
template <class T>
const T& right_extreme(const Parts<T>& parts, std::size_t i, bool max) {
  const T* best = &parts[0][i];
  for (std::size_t r = 1; r < parts.size() && !is_nan(*best); ++r) {
    const auto a = static_cast<double>(widen(*best)), b = static_cast<double>(widen(parts[r][i]));
    if (std::isnan(b) || (max ? b > a : b < a)) best = &parts[r][i];
  }
  return *best;
}
template <class T>
void expect_extremes(const Parts<T>& parts) {
  for (const ReduceOp how : {ReduceOp::min, ReduceOp::max}) {
    const std::vector<T> found = combined(how, parts);
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(same_bits(found[i], right_extreme(parts, i, how == ReduceOp::max)))
          << name_of(how) << ' ' << parts.size() << " parts of " << found.size() << ", element " << i;
  }
}

TYPED_TEST(CombineFloats, ExtremesKeepTheBitsOfOnePart) {
  for_each_target([] {
    for (const std::size_t ranks : {1u, 2u, 3u, 8u})
      for (const std::size_t n : {0u, 1u, 7u, 31u, 32u, 33u, 100u, 20'000u}) {
        const auto seed = static_cast<unsigned>(ranks * n);
        expect_extremes(any_bits<TypeParam>(ranks, n, seed));
        expect_extremes(near_one<TypeParam>(ranks, n, seed));
      }
  });
}

TYPED_TEST(CombineFloats, ExtremesOfZerosInfinitiesAndNaNs) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const double values[] = {0.0, -0.0, inf, -inf, nan, -nan, 1, -1, std::numeric_limits<double>::denorm_min()};
  constexpr std::size_t kinds = std::size(values);
  // All triples of them, each at every place of a vector.
  Parts<TypeParam> parts(3, std::vector<TypeParam>(kinds * kinds * kinds * 37));
  for (std::size_t i = 0; i < parts[0].size(); ++i)
    for (std::size_t r = 0, k = i; r < 3; ++r, k /= kinds) parts[r][i] = narrow<TypeParam>(values[k % kinds]);
  for_each_target([&] { expect_extremes(parts); });
}

template <class T>
class CombineHalves : public ::testing::Test {};
using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(CombineHalves, Halves);

TYPED_TEST(CombineHalves, RoundsOnceAmongTheSmallestNumbers) {
  for_each_target([] {
    for (const std::size_t ranks : {2u, 3u, 7u}) {
      const auto parts = near_nothing<TypeParam>(ranks, 10'000, static_cast<unsigned>(ranks));
      std::vector<double> weights(ranks);
      for (std::size_t r = 0; r < ranks; ++r) weights[r] = 1.1 + static_cast<double>(r);
      expect_sums(parts, ReduceOp::sum);
      expect_sums(parts, ReduceOp::mean);
      expect_sums(parts, ReduceOp::mean, weights);
    }
  });
}

// Ties of the half that a float32 in between would round twice.
TEST(CombineBFloat16, RoundsOnceBesideATie) {
  for_each_target([] {
    Parts<BFloat16> parts(3, std::vector<BFloat16>(40));
    for (std::size_t i = 0; i < 40; ++i) {
      parts[0][i] = to_bfloat16(1);
      parts[1][i] = to_bfloat16(0x1p-8f);                            // half a unit: a tie, to even
      parts[2][i] = to_bfloat16(i % 2 == 0 ? 0x1p-40f : -0x1p-40f);  // float32 does not see it
    }
    const auto sums = combined(ReduceOp::sum, parts);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(to_float(sums[i]), i % 2 == 0 ? 1 + 0x1p-7f : 1.f) << i;
  });
}

template <class T>
class CombineIntegers : public ::testing::Test {};
using Integers = ::testing::Types<std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(CombineIntegers, Integers);

TYPED_TEST(CombineIntegers, WrapAndHaveExactExtremes) {
  for_each_target([] {
    for (std::size_t n = 0; n <= 100; ++n) {
      const auto parts = any_bits<TypeParam>(3, n, static_cast<unsigned>(n));
      const auto sum = combined(ReduceOp::sum, parts), min = combined(ReduceOp::min, parts),
                 max = combined(ReduceOp::max, parts);
      for (std::size_t i = 0; i < n; ++i) {
        const auto at = [&](std::size_t r) { return static_cast<std::uint64_t>(parts[r][i]); };
        EXPECT_EQ(sum[i], static_cast<TypeParam>(at(0) + at(1) + at(2)));
        EXPECT_EQ(min[i], std::min({parts[0][i], parts[1][i], parts[2][i]}));
        EXPECT_EQ(max[i], std::max({parts[0][i], parts[1][i], parts[2][i]}));
      }
    }
  });
}

TEST(CombineBools, AreAllOrAny) {
  bool a[101], b[101], out[101];
  for (std::size_t i = 0; i < 101; ++i) a[i] = i % 2 == 1, b[i] = i % 4 > 1;
  const void* const parts[] = {a, b};
  for_each_target([&] {
    combine(ReduceOp::min, boolean, parts, out, 101);
    for (int i = 0; i < 101; ++i) EXPECT_EQ(out[i], a[i] && b[i]);
    combine(ReduceOp::max, boolean, parts, out, 101);
    for (int i = 0; i < 101; ++i) EXPECT_EQ(out[i], a[i] || b[i]);
  });
}

}  // namespace
}  // namespace everyo
