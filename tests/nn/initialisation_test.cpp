#include "everyo/nn/initialisation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "everyo/nn/parameter.h"
#include "everyo/random.h"

namespace everyo {
namespace {

using testing::HasSubstr;

Tensor filled(const Initializer& initializer, const Shape& shape, DType dtype = float32, std::uint64_t seed = 7) {
  Tensor values = Tensor::empty(shape, dtype);
  initializer(values, seed);
  return values;
}

TEST(Initialisation, FansOfEveryRank) {
  const auto fans = [](const Shape& shape) {
    const Fans f = compute_fans(shape);
    return std::pair(f.in, f.out);
  };
  EXPECT_EQ(fans({}), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(fans({5}), std::pair(std::int64_t{5}, std::int64_t{5}));
  EXPECT_EQ(fans({3, 4}), std::pair(std::int64_t{3}, std::int64_t{4}));
  EXPECT_EQ(fans({3, 2, 4, 8}), std::pair(std::int64_t{24}, std::int64_t{48}));
}

TEST(Initialisation, HeUniformIsNumPysDrawCastToFloat32) {
  // More elements than one block of draws, so that the pieces must join.
  const Tensor weight = filled("he_uniform", {30, 40});
  Generator generator(7);
  const double limit = std::sqrt(6.0 / 30);
  for (const float w : weight.data<float>()) ASSERT_EQ(w, static_cast<float>(generator.uniform(-limit, limit)));
}

TEST(Initialisation, LimitsAndDeviationsFollowTheFans) {
  const struct {
    const char* name;
    double limit;
  } uniforms[] = {{"xavier_uniform", std::sqrt(6.0 / 300)},
                  {"glorot_uniform", std::sqrt(6.0 / 300)},
                  {"he_uniform", std::sqrt(6.0 / 100)},
                  {"kaiming_uniform", std::sqrt(6.0 / 100)},
                  {"uniform", 0.05}};
  for (const auto& [name, limit] : uniforms) {
    double largest = 0;
    for (const double w : filled(name, {100, 200}).to_vector()) largest = std::max(largest, std::abs(w));
    EXPECT_LE(largest, limit * (1 + 1e-7)) << name;  // a draw next to the limit may round up in float32
    EXPECT_GT(largest, limit * 0.99) << name;        // of 20,000 draws the largest comes within 1 % of it
  }
  const struct {
    const char* name;
    double deviation;
  } normals[] = {{"xavier_normal", std::sqrt(2.0 / 300)},
                 {"glorot_normal", std::sqrt(2.0 / 300)},
                 {"he_normal", std::sqrt(2.0 / 100)},
                 {"kaiming_normal", std::sqrt(2.0 / 100)},
                 {"normal", 0.05}};
  for (const auto& [name, deviation] : normals) {
    double squares = 0;
    for (const double w : filled(name, {100, 200}).to_vector()) squares += w * w;
    EXPECT_NEAR(std::sqrt(squares / 20000) / deviation, 1, 0.03) << name;  // six standard errors of 20,000 draws
  }
}

TEST(Initialisation, ConstantsAndGain) {
  for (const double v : filled("zeros", {3}).to_vector()) EXPECT_EQ(v, 0);
  for (const double v : filled("ones", {3}, float16).to_vector()) EXPECT_EQ(v, 1);
  for (const double v : filled(init::constant(0.5), {3}, bfloat16).to_vector()) EXPECT_EQ(v, 0.5);
  const auto one = filled(init::he_uniform(1), {8, 8}, float64).to_vector();
  const auto two = filled(init::he_uniform(2), {8, 8}, float64).to_vector();
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(two[i], 2 * one[i]);  // a power of two scales exactly
}

TEST(Initialisation, HalvesAreTheDoublesRoundedOnce) {
  const Tensor half = filled("he_normal", {16, 16}, float16);
  const Tensor doubles = filled("he_normal", {16, 16}, float64);
  for (std::size_t i = 0; i < doubles.data<double>().size(); ++i)
    EXPECT_EQ(half.data<Float16>()[i], narrow<Float16>(doubles.data<double>()[i]));
}

TEST(Initialisation, AGeneratorMovesOn) {
  Generator generator(7);
  for (const char* name : {"he_normal", "xavier_uniform", "uniform"}) {
    const Initializer fill(name);
    const Tensor values = Tensor::empty({30, 40});
    Generator same = generator;
    fill(values, generator);
    EXPECT_NE(generator.state(), same.state());
    const Tensor again = Tensor::empty({30, 40});
    fill(again, same);
    EXPECT_EQ(values.to_vector(), again.to_vector());
    EXPECT_EQ(generator.state(), same.state());
  }
  Generator seeded(7);
  const Tensor values = Tensor::empty({3});
  Initializer("normal")(values, seeded);
  EXPECT_EQ(values.to_vector(), filled("normal", {3}).to_vector());
  // A function of a seed is given the next 64 bits.
  Generator next = seeded;
  std::uint64_t given = 0;
  Initializer([&](const Tensor&, std::uint64_t seed) { given = seed; })(values, seeded);
  EXPECT_EQ(given, next.next_uint64());
}

TEST(Initialisation, UnknownNameAndIntegersAreRefused) {
  try {
    const Initializer none("he_uniformly");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("Unknown initializer 'he_uniformly'"));
  }
  EXPECT_THROW(filled("zeros", {3}, int64), DTypeError);
  EXPECT_THROW(Parameter({3}, {.dtype = int64}), DTypeError);
}

TEST(Initialisation, AFunctionServesToo) {
  const Parameter p({4}, {.initializer =
                              [](const Tensor& values, std::uint64_t seed) {
                                for (float& v : values.data<float>()) v = static_cast<float>(seed);
                              },
                          .seed = 3});
  for (const double v : p.tensor().to_vector()) EXPECT_EQ(v, 3);
}

}  // namespace
}  // namespace everyo
