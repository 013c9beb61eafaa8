#include "everyo/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace everyo {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
constexpr float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Bit patterns of IEEE 754 binary16.
static_assert(to_float16(0.0f).bits == 0x0000);
static_assert(to_float16(-0.0f).bits == 0x8000);
static_assert(to_float16(1.0f).bits == 0x3c00);
static_assert(to_float16(65504.0f).bits == 0x7bff);
static_assert(to_float16(65519.996f).bits == 0x7bff);  // below the middle
static_assert(to_float16(65520.0f).bits == 0x7c00);    // the middle between the largest and 2^16 goes up
static_assert(to_float16(-65520.0f).bits == 0xfc00);
static_assert(to_float16(infinity).bits == 0x7c00);
static_assert(to_float16(std::numeric_limits<float>::max()).bits == 0x7c00);
static_assert(to_float16(0x1p-14f).bits == 0x0400);    // smallest normal
static_assert(to_float16(0x1p-24f).bits == 0x0001);    // smallest subnormal
static_assert(to_float16(0x1p-25f).bits == 0x0000);    // ties to even: 0
static_assert(to_float16(0x1.8p-24f).bits == 0x0002);  // ties to even: up
static_assert(to_float16(0x1.000002p-25f).bits == 0x0001);
static_assert(to_float16(0x1.ffcp-15f).bits == 0x0400);                // the middle between subnormal and normal
static_assert(to_float16(1.0f + 0x1p-11f).bits == 0x3c00);             // tie, even below
static_assert(to_float16(1.0f + 0x3p-11f).bits == 0x3c02);             // tie, even above
static_assert(to_float16(1.0f + 0x1p-11f + 0x1p-23f).bits == 0x3c01);  // just over a tie
static_assert(to_float16(float_of(0x7f800001u)).bits == 0x7e00);       // a signalling NaN is quieted
static_assert(to_float16(float_of(0xffc02000u)).bits == 0xfe01);       // payload and sign are kept
static_assert(to_float16(1e-6f).bits == 0x0011);
static_assert(to_float(to_float16(1e-7f)) == 1.1920929e-7f);
static_assert(to_float16(1e-8f).bits == 0);
static_assert(bits_of(to_float(Float16{0x7c01})) == 0x7fc02000u);
static_assert(bits_of(to_float(Float16{0x8000})) == 0x80000000u);
static_assert(to_float(Float16{0x03ff}) == 0x3ffp-24f);

// Bit patterns of bfloat16.
static_assert(to_bfloat16(0.0f).bits == 0x0000);
static_assert(to_bfloat16(-0.0f).bits == 0x8000);
static_assert(to_bfloat16(1.0f).bits == 0x3f80);
static_assert(to_bfloat16(1.0f + 0x1p-8f).bits == 0x3f80);  // tie, even below
static_assert(to_bfloat16(1.0f + 0x3p-8f).bits == 0x3f82);  // tie, even above
static_assert(to_bfloat16(1.0f + 0x1.8p-8f).bits == 0x3f81);
static_assert(to_bfloat16(65504.0f).bits == 0x4780);
static_assert(to_bfloat16(0x1.FEp127f).bits == 0x7f7f);  // largest
static_assert(to_bfloat16(0x1.FFp127f).bits == 0x7f80);  // the middle goes up
static_assert(to_bfloat16(0x1.FEFFFEp127f).bits == 0x7f7f);
static_assert(to_bfloat16(infinity).bits == 0x7f80);
static_assert(to_bfloat16(-infinity).bits == 0xff80);
static_assert(to_bfloat16(0x1p-126f).bits == 0x0080);  // smallest normal
static_assert(to_bfloat16(0x1p-133f).bits == 0x0001);  // smallest subnormal
static_assert(to_bfloat16(0x1p-134f).bits == 0x0000);  // ties to even: 0
static_assert(to_bfloat16(float_of(0x7f800001u)).bits == 0x7fc0);
static_assert(to_bfloat16(float_of(0xffc10000u)).bits == 0xffc1);
static_assert(bits_of(to_float(BFloat16{0x7f81})) == 0x7f810000u);
static_assert(to_float(BFloat16{0x0001}) == 0x1p-133f);

// narrow rounds once: through the nearest float these would be ties, and go the other way.
static_assert(narrow<Float16>(1.0 + 0x1p-11 + 0x1p-40).bits == 0x3c01);
static_assert(narrow<Float16>(1.0 + 0x3p-11 - 0x1p-40).bits == 0x3c01);
static_assert(narrow<Float16>(-(1.0 + 0x1p-11 + 0x1p-40)).bits == 0xbc01);
static_assert(narrow<Float16>(0x1p-25 + 0x1p-60).bits == 0x0001);
static_assert(narrow<BFloat16>(1.0 + 0x1p-8 + 0x1p-40).bits == 0x3f81);
static_assert(narrow<BFloat16>((std::int64_t{1} << 62) + (std::int64_t{1} << 54) + 1).bits == 0x5e81);
static_assert(narrow<BFloat16>((std::int64_t{1} << 62) + (std::int64_t{1} << 54)).bits == 0x5e80);
static_assert(narrow<BFloat16>(-(std::int64_t{1} << 62) - (std::int64_t{1} << 54) - 1).bits == 0xde81);
static_assert(narrow<Float16>(std::int64_t{2049}).bits == to_float16(2048.0f).bits);
static_assert(narrow<Float16>(true).bits == 0x3c00);
static_assert(narrow<Float16>(std::numeric_limits<double>::quiet_NaN()).bits == 0x7e00);
static_assert(narrow<bool>(0.5f) && !narrow<bool>(0.0f));
static_assert(narrow<std::int32_t>(-2.75) == -2);
static_assert(widen(Float16{0x3c00}) == 1.0f && widen(7) == 7);

TEST(Half, Float16RoundTripsEveryPattern) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const Float16 half{static_cast<std::uint16_t>(i)};
    const float value = to_float(half);
    const std::uint16_t expected = std::isnan(value) ? static_cast<std::uint16_t>(i | 0x200u) : half.bits;
    ASSERT_EQ(to_float16(value).bits, expected);
    ASSERT_EQ(narrow<Float16>(static_cast<double>(value)).bits, expected);
  }
}

TEST(Half, BFloat16RoundTripsEveryPattern) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const BFloat16 half{static_cast<std::uint16_t>(i)};
    const float value = to_float(half);
    ASSERT_EQ(to_bfloat16(value).bits, std::isnan(value) ? static_cast<std::uint16_t>(i | 0x40u) : half.bits);
  }
}

/// The nearest of the two halves around a value, the even one at a tie, by comparing distances in double.
template <class Half>
Half nearest(double value, double max, std::uint16_t infinite) {
  const double magnitude = std::abs(value);
  std::uint16_t low = 0, high = infinite;  // positive patterns are ordered as their values are
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(to_float(Half{middle})) <= magnitude ? low : high) = middle;
  }
  const double ulp = max - static_cast<double>(to_float(Half{static_cast<std::uint16_t>(infinite - 2)}));
  const double above = high == infinite ? max + ulp : static_cast<double>(to_float(Half{high}));
  const double down = magnitude - static_cast<double>(to_float(Half{low})), up = above - magnitude;
  const std::uint16_t chosen = down < up || (down == up && low % 2 == 0) ? low : high;
  return Half{static_cast<std::uint16_t>(chosen | (std::signbit(value) ? 0x8000u : 0u))};
}

TEST(Half, RandomValuesGoToTheNearest) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> exponent(-30, 17), significand(1, 2);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::ldexp(significand(engine), static_cast<int>(exponent(engine))) * (i % 2 != 0 ? -1 : 1);
    ASSERT_EQ(narrow<Float16>(value).bits, nearest<Float16>(value, 65504, 0x7c00).bits) << value;
    ASSERT_EQ(narrow<BFloat16>(value).bits, nearest<BFloat16>(value, 0x1.FEp127, 0x7f80).bits) << value;
    const auto single = static_cast<float>(value);
    ASSERT_EQ(to_float16(single).bits, nearest<Float16>(static_cast<double>(single), 65504, 0x7c00).bits) << value;
  }
}

TEST(Half, FloatsBecomeIntegersWithinTheirRange) {
  EXPECT_EQ(narrow<std::uint8_t>(300.0), 255);
  EXPECT_EQ(narrow<std::uint8_t>(-1.5f), 0);
  EXPECT_EQ(narrow<std::int32_t>(-3.9), -3);
  EXPECT_EQ(narrow<std::int64_t>(std::nan("")), 0);
  EXPECT_EQ(narrow<std::int64_t>(1e30f), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(narrow<std::int64_t>(-1e30), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(narrow<std::int32_t>(2147483647.0), 2147483647);
  EXPECT_EQ(narrow<std::int32_t>(2147483648.0f), 2147483647);
}

TEST(Half, DoublesBeyondFloatBecomeInfinite) {
  volatile double huge = 1e300;
  EXPECT_EQ(narrow<Float16>(static_cast<double>(huge)).bits, 0x7c00);
  EXPECT_EQ(narrow<BFloat16>(-static_cast<double>(huge)).bits, 0xff80);
}

}  // namespace
}  // namespace everyo
