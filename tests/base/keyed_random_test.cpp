#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/philox.h"
#include "everyo/context.h"
#include "everyo/random.h"

namespace everyo {
namespace {

using philox::Block;
using philox::philox4x32;

// Known answers of the authors' Random123 library, tests/kat_vectors, philox4x32 with 10 rounds.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
static_assert(philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}) ==
              Block{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
static_assert(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
              Block{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});

TEST(KeyedGenerator, SpansAreTheirElements) {
  const KeyedGenerator generator({.seed = 1, .step = 2, .path_hash = 3, .micro_batch = 4});
  for (const std::size_t first : {0u, 1u, 2u, 3u, 4u, 1001u}) {
    std::vector<float> out(37, -1.0f);
    generator.uniform(first, out);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], generator.uniform(first + i));
  }
}

TEST(KeyedGenerator, EveryPartOfTheKeyCounts) {
  const DrawKey base{.seed = 1, .step = 2, .path_hash = 3, .micro_batch = 4, .site = 5};
  std::vector<DrawKey> keys(11, base);
  keys[1].seed = 2;
  keys[2].step = 3;
  keys[3].path_hash = 4;
  keys[4].micro_batch = 5;
  keys[5].site = 6;
  keys[6].seed |= std::uint64_t{1} << 32;
  keys[7].step |= std::uint64_t{1} << 32;
  keys[8].path_hash |= std::uint64_t{1} << 32;
  std::swap(keys[9].seed, keys[9].step);
  std::swap(keys[10].micro_batch, keys[10].site);
  std::set<std::uint32_t> draws;
  for (const DrawKey& key : keys) {
    for (std::uint64_t i = 0; i < 8; ++i) draws.insert(KeyedGenerator(key).bits(i));
  }
  EXPECT_EQ(draws.size(), keys.size() * 8);
  EXPECT_EQ(KeyedGenerator(base).bits(0), KeyedGenerator(base).bits(0));
}

TEST(KeyedGenerator, IndicesBeyond32BitsAreTheirOwn) {
  const KeyedGenerator generator({.seed = 8});
  EXPECT_NE(generator.bits(1), generator.bits(1 + (std::uint64_t{1} << 34)));
}

TEST(KeyedGenerator, KeyComesFromTheContext) {
  const ModuleScope scope{.module = nullptr, .parent = nullptr, .name = "up", .path_hash = 77, .stamped = false};
  Scoped<&Context::seed> seed(5);
  Scoped<&Context::step> step(6);
  Scoped<&Context::micro_batch> micro_batch(7);
  Scoped<&Context::scope> in(&scope);
  const DrawKey key = DrawKey::here(9);
  EXPECT_EQ(key.seed, 5u);
  EXPECT_EQ(key.step, 6u);
  EXPECT_EQ(key.micro_batch, 7u);
  EXPECT_EQ(key.path_hash, 77u);
  EXPECT_EQ(key.site, 9u);
}

TEST(KeyedGenerator, RanksAndMicroBatchesHaveKeysOfTheirOwn) {
  std::set<std::uint32_t> draws;
  for (std::int32_t rank = 0; rank < 256; ++rank)
    for (const std::int32_t number : {0, 1, 2, 255, 256, (1 << 24) - 1}) {
      const Scoped<&Context::rank> of(rank);
      const Scoped<&Context::micro_batch> part(number);
      draws.insert(DrawKey::here().micro_batch);
    }
  EXPECT_EQ(draws.size(), 256 * 6);
}

TEST(KeyedGenerator, UniformAndNormalMoments) {
  const KeyedGenerator generator({.seed = 3});
  const std::uint64_t count = 200'000;
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = generator.uniform(i), z = generator.standard_normal(i);
    ASSERT_TRUE(u >= 0 && u < 1 && std::isfinite(z));
    sum += u;
    squares += u * u;
    normal_sum += z;
    normal_squares += z * z;
  }
  const double n = static_cast<double>(count);
  // Five standard errors: of a mean 0.29 / sqrt(n), of a mean square 0.3 / sqrt(n); normal 1 and 1.41 / sqrt(n).
  EXPECT_NEAR(sum / n, 0.5, 5 * 0.29 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * 0.3 / std::sqrt(n));
  EXPECT_NEAR(normal_sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(normal_squares / n, 1, 5 * 1.41 / std::sqrt(n));
}

}  // namespace
}  // namespace everyo
