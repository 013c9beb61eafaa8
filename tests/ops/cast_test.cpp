#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/ops.h"

namespace everyo {
namespace {

using testing::ElementsAre;

TEST(Cast, Float16RangeOfSmallNumbers) {
  // P1: 1e-6 survives, 1e-7 becomes 2^-23, 1e-8 is gone.
  const Tensor x = cast(Tensor::from<float>({1e-6f, 1e-7f, 1e-8f, 65504, 70000}), float16);
  EXPECT_EQ(x.dtype(), float16);
  const auto values = x.to_vector();
  EXPECT_NEAR(values[0], 1e-6, 3e-8);  // half a unit of 2^-24
  EXPECT_EQ(values[1], 0x1p-23);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 65504);
  EXPECT_TRUE(std::isinf(values[4]));
}

TEST(Cast, TheSameDTypeIsTheSameTensor) {
  const Tensor x = Tensor::ones({2});
  EXPECT_EQ(cast(x, float32).body(), x.body());
}

TEST(Cast, GradientComesBackInTheOperandsDType) {
  const Tensor x = Tensor::ones({2});
  x.set_requires_grad();
  const Tensor half = cast(x, float16);
  EXPECT_TRUE(half.requires_grad());
  const Tensor seed = Tensor::full({2}, 1e-8, float16);
  half.backward({.seed = &seed});
  EXPECT_EQ(x.grad().dtype(), float32);
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(0, 0));  // underflow is real
}

TEST(Cast, ToIntegersEndsTheGraph) {
  const Tensor x = Tensor::from<float>({-1.9f, 2.9f});
  x.set_requires_grad();
  const Tensor y = cast(x, int64);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_THAT(y.to_vector(), ElementsAre(-1, 2));
}

}  // namespace
}  // namespace everyo
