#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::convert;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class To, class From>
std::vector<To> converted(const std::vector<From>& in) {
  std::vector<To> out(in.size());
  convert(dtype_v<From>, in.data(), dtype_v<To>, out.data(), static_cast<std::int64_t>(in.size()));
  return out;
}

struct BitPattern {
  float value;
  std::uint16_t float16, bfloat16;
};
constexpr BitPattern patterns[] = {
    {0.0f, 0x0000, 0x0000},
    {-0.0f, 0x8000, 0x8000},
    {1.0f, 0x3c00, 0x3f80},
    {-2.0f, 0xc000, 0xc000},
    {0x1p-24f, 0x0001, 0x3380},           // float16's smallest subnormal
    {0x1p-25f, 0x0000, 0x3300},           // half of it: a tie, to even
    {0x1.000002p-25f, 0x0001, 0x3300},    // just above the tie
    {0x1.8p-24f, 0x0002, 0x33c0},         // a tie between subnormals 1 and 2
    {0x1.ff8p-15f, 0x03ff, 0x3880},       // largest subnormal is 0x3ff
    {0x1.ffcp-15f, 0x0400, 0x3880},       // a tie that becomes the smallest normal
    {0x1p-14f, 0x0400, 0x3880},           // smallest normal
    {1.0f + 0x1p-11f, 0x3c00, 0x3f80},    // ties to even, down
    {1.0f + 0x1.8p-10f, 0x3c02, 0x3f80},  // ties to even, up
    {1.0f + 0x1p-8f, 0x3c04, 0x3f80},     // bfloat16: ties to even, down
    {1.0f + 0x1.8p-7f, 0x3c0c, 0x3f82},   // bfloat16: ties to even, up
    {1.0f + 0x1.8p-8f, 0x3c06, 0x3f81},   // bfloat16: up
    {65504.0f, 0x7bff, 0x4780},           // float16's largest
    {65519.996f, 0x7bff, 0x4780},         // still rounds to it
    {65520.0f, 0x7c00, 0x4780},           // a tie that becomes infinity
    {-65520.0f, 0xfc00, 0xc780},
    {1e-7f, 0x0002, 0x33d7},          // P1: 1.2e-7
    {1e-8f, 0x0000, 0x322c},          // P1: 0
    {3.3895314e38f, 0x7c00, 0x7f7f},  // bfloat16's largest
    {std::numeric_limits<float>::max(), 0x7c00, 0x7f80},
    {0x1p-126f, 0x0000, 0x0080},  // bfloat16's smallest normal
    {0x1p-133f, 0x0000, 0x0001},  // bfloat16's smallest subnormal
    {0x1p-134f, 0x0000, 0x0000},  // half of it
    {infinity, 0x7c00, 0x7f80},
    {-infinity, 0xfc00, 0xff80},
};

TEST(Convert, BitPatterns) {
  for_each_target([] {
    std::vector<float> values;
    for (const BitPattern& p : patterns) values.push_back(p.value);
    const auto halves = converted<Float16>(values);
    const auto brains = converted<BFloat16>(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(halves[i].bits, patterns[i].float16) << values[i];
      EXPECT_EQ(brains[i].bits, patterns[i].bfloat16) << values[i];
    }
  });
}

template <class Half>
void every_half_comes_back() {
  std::vector<Half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const auto wide = converted<float>(all);
  const auto back = converted<Half>(wide);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(to_float(all[i]))) << i;
    if (std::isnan(wide[i])) {
      ASSERT_EQ(back[i].bits & 0x8000u, i & 0x8000u);
      ASSERT_TRUE(std::isnan(to_float(back[i]))) << i;
    } else {
      ASSERT_EQ(back[i].bits, i);
    }
  }
}

TEST(Convert, EveryHalfComesBack) {
  for_each_target([] {
    every_half_comes_back<Float16>();
    every_half_comes_back<BFloat16>();
  });
}

TEST(Convert, NarrowsAsTheScalarCode) {
  // Every exponent and sign with random mantissas, and the neighbours of every float16 and of every tie between two.
  std::vector<float> values;
  std::mt19937 engine(1);
  for (int i = 0; i < 200000; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(engine())));
  for (std::uint32_t h = 0; h < 0x7c00; ++h) {
    const std::uint32_t here = std::bit_cast<std::uint32_t>(to_float(Float16{static_cast<std::uint16_t>(h)}));
    const float next = to_float(Float16{static_cast<std::uint16_t>(h + 1)});
    const std::uint32_t tie =
        std::bit_cast<std::uint32_t>(h == 0x7bff ? 65520.0f : (std::bit_cast<float>(here) + next) / 2);
    for (const std::uint32_t bits : {here, here + 1, tie - 1, tie, tie + 1}) {
      values.push_back(std::bit_cast<float>(bits));
      values.push_back(std::bit_cast<float>(bits | 0x80000000u));
    }
  }
  for_each_target([&] {
    const auto halves = converted<Float16>(values);
    const auto brains = converted<BFloat16>(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(halves[i].bits, to_float16(values[i]).bits) << std::bit_cast<std::uint32_t>(values[i]);
      ASSERT_EQ(brains[i].bits, to_bfloat16(values[i]).bits) << std::bit_cast<std::uint32_t>(values[i]);
    }
  });
}

TEST(Convert, NaNStaysNaN) {
  for_each_target([] {
    const std::vector<float> values(19, std::numeric_limits<float>::quiet_NaN());
    for (const Float16 h : converted<Float16>(values)) EXPECT_TRUE(std::isnan(to_float(h)));
    for (const BFloat16 b : converted<BFloat16>(values)) EXPECT_TRUE(std::isnan(to_float(b)));
    const std::vector<float> signalling(19, std::bit_cast<float>(0x7f800001u));
    for (const BFloat16 b : converted<BFloat16>(signalling)) EXPECT_TRUE(std::isnan(to_float(b)));
  });
}

// One value of each element by the scalar rules, written out again here.
template <class To, class From>
To expected(From element) {
  const auto value = widen(element);
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<std::remove_cv_t<decltype(value)>>) {
    if (std::isnan(value)) return 0;
    const auto whole = std::trunc(static_cast<long double>(value));
    if (whole < static_cast<long double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (whole > static_cast<long double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
  } else {
    return narrow<To>(value);
  }
}

template <class From>
std::vector<From> interesting() {
  std::vector<From> values;
  for (const double v : {0.0,           1.0,    -1.0,  2.5,     -2.5,  0.999,        255.0,        255.9,
                         256.0,         -0.5,   300.0, 65504.0, 1e6,   2147483647.0, 2147483648.0, -2147483648.0,
                         -2147483649.0, 9.2e18, 1e19,  -1e19,   1e300, 0x1.002001p0, 1e-8})
    values.push_back(expected<From>(v));
  if constexpr (std::is_integral_v<From>) {
    values.push_back(std::numeric_limits<From>::max());
    values.push_back(std::numeric_limits<From>::min());
  } else {
    values.push_back(narrow<From>(infinity));
    values.push_back(narrow<From>(-infinity));
    values.push_back(narrow<From>(std::numeric_limits<float>::quiet_NaN()));
  }
  return values;
}

TEST(Convert, EveryPairOfDtypes) {
  for_each_target([] {
    for (std::size_t from = 0; from < dtype_count; ++from)
      for (std::size_t to = 0; to < dtype_count; ++to)
        visit_dtype(static_cast<DType>(from), [&]<class From>() {
          visit_dtype(static_cast<DType>(to), [&]<class To>() {
            const auto list = interesting<From>();
            const auto in = std::make_unique<From[]>(list.size());  // std::vector<bool> has no array
            std::copy(list.begin(), list.end(), in.get());
            std::vector<unsigned char> out(list.size() * sizeof(To));
            convert(dtype_v<From>, in.get(), dtype_v<To>, out.data(), static_cast<std::int64_t>(list.size()));
            for (std::size_t i = 0; i < list.size(); ++i) {
              To got;
              std::memcpy(&got, out.data() + i * sizeof(To), sizeof(To));
              const To want = expected<To>(in[i]);
              const bool both_nan = widen(got) != widen(got) && widen(want) != widen(want);
              EXPECT_TRUE(both_nan || std::memcmp(&got, &want, sizeof(To)) == 0)
                  << name_of(dtype_v<From>) << " to " << name_of(dtype_v<To>) << ", element " << i;
            }
          });
        });
  });
}

template <class From, class To>
void same_bits_everywhere() {
  std::mt19937 engine(2);
  std::vector<From> source(128);
  for (From& v : source) v = narrow<From>(std::ldexp(static_cast<float>(engine()), -20));
  const auto whole = converted<To>(source);
  constexpr unsigned char guard = 0xa5;
  for (std::size_t offset = 0; offset < 18; ++offset)
    for (std::size_t n = 0; n < 70; ++n) {
      std::vector<unsigned char> out((n + 2) * sizeof(To), guard);
      // An exact copy of the input: the address sanitizer sees a read past either end.
      const std::vector<From> in(source.begin() + static_cast<std::ptrdiff_t>(offset),
                                 source.begin() + static_cast<std::ptrdiff_t>(offset + n));
      convert(dtype_v<From>, n == 0 ? source.data() : in.data(), dtype_v<To>, out.data() + sizeof(To),
              static_cast<std::int64_t>(n));
      ASSERT_EQ(std::memcmp(out.data() + sizeof(To), whole.data() + offset, n * sizeof(To)), 0)
          << "offset " << offset << ", length " << n;
      for (std::size_t byte = 0; byte < sizeof(To); ++byte) {
        ASSERT_EQ(out[byte], guard);
        ASSERT_EQ(out[out.size() - 1 - byte], guard);
      }
    }
}

TEST(Convert, SameBitsWhereverAnElementLies) {
  for_each_target([] {
    same_bits_everywhere<float, Float16>();
    same_bits_everywhere<float, BFloat16>();
    same_bits_everywhere<float, double>();
    same_bits_everywhere<double, float>();
    same_bits_everywhere<Float16, float>();
    same_bits_everywhere<BFloat16, float>();
    same_bits_everywhere<BFloat16, Float16>();
    same_bits_everywhere<Float16, std::int32_t>();
  });
}

}  // namespace
}  // namespace everyo
