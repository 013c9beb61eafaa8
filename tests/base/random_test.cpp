#include "everyo/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "everyo/error.h"

namespace everyo {
namespace {

struct SeedCase {
  std::vector<std::uint32_t> words;
  std::vector<std::uint64_t> raw, random, random_f, uniform, standard_normal, standard_normal_f, normal, permutation,
      spawned, jumped;
};
struct IntegerCase {
  std::int64_t low, high;
  std::vector<std::uint64_t> first;
  std::uint64_t hash;
};
#include "base/random_draws.inc"

template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<std::uint32_t>(value);
  else
    return std::bit_cast<std::uint64_t>(value);
}

template <class F>
std::vector<std::uint64_t> draw(std::size_t count, F&& next) {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(bits_of(next()));
  return out;
}

/// FNV-1a, a word at a time, as make_random_draws.py has it.
template <class T>
std::uint64_t hash(std::span<const T> values) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const T value : values) digest = (digest ^ bits_of(value)) * 0x100000001b3u;
  return digest;
}

TEST(Generator, DrawsWhatNumPyDraws) {
  for (const SeedCase& expected : seed_cases) {
    const SeedSequence seed(expected.words);
    Generator raw(seed), random(seed), random_f(seed), uniform(seed), normal(seed), normal_f(seed), scaled(seed);
    EXPECT_EQ(draw(3, [&] { return raw.next_uint64(); }), expected.raw);
    EXPECT_EQ(draw(3, [&] { return random.random(); }), expected.random);
    EXPECT_EQ(draw(3, [&] { return random_f.random_f(); }), expected.random_f);
    EXPECT_EQ(draw(3, [&] { return uniform.uniform(-0.125, 0.7); }), expected.uniform);
    EXPECT_EQ(draw(3, [&] { return normal.standard_normal(); }), expected.standard_normal);
    EXPECT_EQ(draw(3, [&] { return normal_f.standard_normal_f(); }), expected.standard_normal_f);
    EXPECT_EQ(draw(3, [&] { return scaled.normal(1.5, 0.3); }), expected.normal);
    const std::vector<std::int64_t> order = Generator(seed).permutation(10);
    EXPECT_EQ(std::vector<std::uint64_t>(order.begin(), order.end()), expected.permutation);
  }
}

TEST(Generator, SeedOf64BitsIsItsWords) {
  for (const std::uint64_t seed : {0ul, 1ul, 42ul, 4294967295ul, 4294967296ul, 9223372036854775813ul}) {
    std::vector<std::uint32_t> words{static_cast<std::uint32_t>(seed)};
    if (seed >> 32 != 0) words.push_back(static_cast<std::uint32_t>(seed >> 32));
    EXPECT_EQ(Generator(seed).state(), Generator(SeedSequence(words)).state());
  }
}

TEST(Generator, LongRunsReachTheRareBranches) {
  std::vector<double> wide(long_run);
  std::vector<float> narrow(long_run);
  Generator(7).random(wide);
  EXPECT_EQ(hash<double>(wide), random_hash);
  Generator(7).random(narrow);
  EXPECT_EQ(hash<float>(narrow), random_f_hash);
  Generator(7).standard_normal(wide);
  EXPECT_EQ(hash<double>(wide), standard_normal_hash);
  Generator(7).standard_normal(narrow);
  EXPECT_EQ(hash<float>(narrow), standard_normal_f_hash);
  EXPECT_EQ(hash<std::int64_t>(Generator(7).permutation(long_run)), permutation_hash);
}

TEST(Generator, IntegersOfEveryWidth) {
  for (const IntegerCase& expected : integer_cases) {
    Generator generator(3);
    EXPECT_EQ(draw(2, [&] { return generator.integers(expected.low, expected.high); }), expected.first);
    std::vector<std::int64_t> rest(1000);
    generator.integers(expected.low, expected.high, rest);
    EXPECT_EQ(hash<std::int64_t>(rest), expected.hash) << expected.low << " " << expected.high;
  }
}

TEST(Generator, KindsOfDrawMix) {
  Generator generator(11);
  std::vector<std::uint64_t> drawn{
      bits_of(generator.random_f()),        bits_of(generator.random()),
      bits_of(generator.integers(0, 100)),  bits_of(generator.standard_normal_f()),
      bits_of(generator.standard_normal()), bits_of(generator.integers(-(1l << 40), 1l << 40))};
  EXPECT_EQ(drawn, std::vector<std::uint64_t>(std::begin(mixed_draws), std::end(mixed_draws)));
  EXPECT_EQ(generator.permutation(7), mixed_permutation);
  EXPECT_EQ(generator.state(), mixed_state);
}

TEST(Generator, StateIsSavedAndRestored) {
  Generator generator(5);
  generator.random_f();
  const GeneratorState saved = generator.state();
  EXPECT_TRUE(saved.has_uint32);
  const double drawn = generator.standard_normal();
  const float half = generator.random_f();
  Generator other(6);
  other.set_state(saved);
  EXPECT_EQ(other.standard_normal(), drawn);
  EXPECT_EQ(other.random_f(), half);
}

TEST(Generator, SpansDrawWhatSinglesDraw) {
  Generator singles(9), spans(9);
  std::vector<double> wide(50);
  std::vector<float> narrow(50);
  spans.uniform(-2, 3, wide);
  for (const double value : wide) EXPECT_EQ(value, singles.uniform(-2, 3));
  spans.uniform(-2, 3, narrow);
  for (const float value : narrow) EXPECT_EQ(value, static_cast<float>(singles.uniform(-2, 3)));
  spans.normal(1, 2, wide);
  for (const double value : wide) EXPECT_EQ(value, singles.normal(1, 2));
  spans.normal(1, 2, narrow);
  for (const float value : narrow) EXPECT_EQ(value, static_cast<float>(singles.normal(1, 2)));
}

TEST(Generator, SpawnedAndJumpedStreams) {
  for (const SeedCase& expected : seed_cases) {
    SeedSequence seed(expected.words);
    std::vector<SeedSequence> children = seed.spawn(1);
    for (SeedSequence& child : seed.spawn(2)) children.push_back(std::move(child));
    std::vector<std::uint64_t> spawned, jumped;
    for (const SeedSequence& child : children) spawned.push_back(Generator(child).next_uint64());
    EXPECT_EQ(spawned, expected.spawned);
    for (const std::uint64_t jumps : {1u, 2u, 5u}) jumped.push_back(Generator(seed).jumped(jumps).next_uint64());
    EXPECT_EQ(jumped, expected.jumped);
  }
}

TEST(Generator, RefusesWhatMakesNoSense) {
  Generator generator(0);
  EXPECT_THROW(generator.uniform(1, 0), ValueError);
  EXPECT_THROW(generator.uniform(0, std::numeric_limits<double>::infinity()), ValueError);
  EXPECT_THROW(generator.uniform(-1e308, 1e308), ValueError);
  EXPECT_THROW(generator.normal(0, -1), ValueError);
  EXPECT_THROW(generator.normal(0, std::nan("")), ValueError);
  EXPECT_THROW(generator.integers(3, 3), ValueError);
  EXPECT_THROW(generator.permutation(-1), ValueError);
  EXPECT_TRUE(generator.permutation(0).empty());
  EXPECT_EQ(generator.state(), Generator(0).state());  // a refused call draws nothing
}

}  // namespace
}  // namespace everyo
