#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "everyo/error.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;
using testing::HasSubstr;
using One = std::vector<Tensor>;

TEST(UnaryOps, Values) {
  const Tensor x = Tensor::from<float>({0.25f, 4});
  EXPECT_FLOAT_EQ(static_cast<float>(exp(x).to_vector()[0]), std::exp(0.25f));
  EXPECT_FLOAT_EQ(static_cast<float>(log(x).to_vector()[1]), std::log(4.0f));
  EXPECT_THAT(sqrt(x).to_vector(), ElementsAre(0.5, 2));
  EXPECT_THAT(abs(-x).to_vector(), ElementsAre(0.25, 4));
  EXPECT_THAT(clip(x, 1, 2).to_vector(), ElementsAre(1, 2));
  EXPECT_THAT(power(x, 2).to_vector(), ElementsAre(0.0625, 16));
  EXPECT_THAT(power(x, -0.5).to_vector(), ElementsAre(2, 0.5));
}

TEST(UnaryOps, Gradients) {
  const Tensor x = draw({3, 7}, 1, 0.3, 2);
  check_gradients([](const One& v) { return exp(v[0]); }, {x.copy()});
  check_gradients([](const One& v) { return log(v[0]); }, {x.copy()});
  check_gradients([](const One& v) { return sqrt(v[0]); }, {x.copy()});
  check_gradients([](const One& v) { return abs(v[0]); }, {draw({3, 7}, 2)});
  check_gradients([](const One& v) { return clip(v[0], -1.0001, 1.0001); }, {draw({3, 7}, 3)});
  for (const double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 1.7})
    check_gradients([=](const One& v) { return power(v[0], exponent); }, {x.copy()});
}

TEST(UnaryOps, DTypes) {
  const Tensor integers = Tensor::from<std::int64_t>({-2, 3});
  EXPECT_EQ(exp(integers).dtype(), float32);
  EXPECT_EQ(power(integers, 2).dtype(), float32);
  EXPECT_EQ(abs(integers).dtype(), int64);
  EXPECT_THAT(abs(integers).to_vector(), ElementsAre(2, 3));
  EXPECT_THAT(clip(integers, -1, 2).to_vector(), ElementsAre(-1, 2));
  EXPECT_EQ(exp(Tensor::ones({2}, float16)).dtype(), float16);
  // keep32: what autocast computes in float32; what follows stays.
  const Scoped<&Context::autocast> autocast(true);
  EXPECT_EQ(exp(Tensor::ones({2}, float16)).dtype(), float32);
  EXPECT_EQ(log(Tensor::ones({2}, bfloat16)).dtype(), float32);
  EXPECT_EQ(exp(Tensor::ones({2}, float64)).dtype(), float64);
  EXPECT_EQ(sqrt(Tensor::ones({2}, float16)).dtype(), float16);
  EXPECT_EQ(relu(Tensor::ones({2}, float16)).dtype(), float16);
}

TEST(UnaryOps, ClipRefusesAnEmptyInterval) {
  try {
    clip(Tensor::ones({2}), 2, 1);
    FAIL();
  } catch (const ShapeError& e) {
    EXPECT_THAT(e.what(), HasSubstr("low <= high"));
    EXPECT_THAT(e.what(), HasSubstr("2"));
  }
}

TEST(UnaryOps, GradientOfTheWholeChainStaysInTheHalf) {
  const Tensor x = Tensor::ones({4}, float16);
  x.set_requires_grad();
  const Tensor seed = Tensor::ones({4}, float16);
  exp(abs(-x)).backward({.seed = &seed});
  EXPECT_EQ(x.grad().dtype(), float16);
  EXPECT_EQ(x.grad().to_vector()[0], 2.71875);  // e in float16
}

}  // namespace
}  // namespace everyo
