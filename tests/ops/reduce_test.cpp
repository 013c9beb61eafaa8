#include <gmock/gmock.h>

#include <cmath>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ReduceOps, ShapesAndValues) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x).item(), 21);
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1}));
  EXPECT_THAT(sum(x, {0}).to_vector(), ElementsAre(5, 7, 9));
  EXPECT_THAT(mean(x, {-1}).to_vector(), ElementsAre(2, 5));
  EXPECT_EQ(mean(x, {1}, true).shape(), (Shape{2, 1}));
  EXPECT_THAT(max(x, {1}).to_vector(), ElementsAre(3, 6));
  EXPECT_THAT(min(x, {0, 1}).to_vector(), ElementsAre(1));
  EXPECT_THAT(argmax(x).to_vector(), ElementsAre(2, 2));
  EXPECT_THAT(argmax(x, 0).to_vector(), ElementsAre(1, 1, 1));
  EXPECT_EQ(argmax(x).dtype(), int64);
  EXPECT_NEAR(variance(x).item(), 35.0 / 12, 1e-6);  // float32: a few ulp
  EXPECT_EQ(sum(Tensor::scalar(3)).item(), 3);
}

TEST(ReduceOps, DTypes) {
  EXPECT_EQ(sum(Tensor::ones({3}, int32)).dtype(), int64);
  EXPECT_EQ(sum(Tensor::ones({3}, boolean)).item(), 3);
  EXPECT_EQ(mean(Tensor::ones({3}, int64)).dtype(), float32);
  EXPECT_EQ(max(Tensor::ones({3}, uint8)).dtype(), uint8);
  EXPECT_EQ(sum(Tensor::ones({3}, float16)).dtype(), float16);
  const Scoped<&Context::autocast> on(true);
  EXPECT_EQ(sum(Tensor::ones({3}, float16)).dtype(), float32);
  EXPECT_EQ(mean(Tensor::ones({3}, bfloat16)).dtype(), float32);
  EXPECT_EQ(max(Tensor::ones({3}, float16)).dtype(), float16);
  EXPECT_EQ(sum(Tensor::ones({3}, float64)).dtype(), float64);
}

// numerics N06 and N09.
TEST(ReduceOps, N06_N09_HalvesAccumulateWide) {
  EXPECT_EQ(sum(Tensor::ones({4096}, float16)).item(), 4096);
  EXPECT_EQ(mean(Tensor::ones({4096}, bfloat16)).item(), 1);
  EXPECT_EQ(mean(Tensor::full({70000}, 1.5, float16)).item(), 1.5);
}

TEST(ReduceOps, Gradients) {
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}, Axes{-1, 1}}) {
    const Tensor x = uniform_leaf({3, 4, 5}, 1);
    check_gradients([&] { return sum(x, axes); }, {x});
    check_gradients([&] { return mean(x, axes, true); }, {x});
    check_gradients([&] { return max(x, axes); }, {x});
    check_gradients([&] { return min(x, axes, true); }, {x});
    check_gradients([&] { return variance(x, axes); }, {x});
  }
}

TEST(ReduceOps, TiesShareTheGradient) {
  const Tensor x = Tensor::from<float>({1, 3, 3, 2}).set_requires_grad();
  max(x).backward();
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(0, 0.5, 0.5, 0));
}

TEST(ReduceOps, NothingToReduce) {
  EXPECT_EQ(sum(Tensor::empty({0, 3})).item(), 0);
  EXPECT_TRUE(std::isnan(mean(Tensor::empty({0})).item()));
  EXPECT_THAT(message_of<ShapeError>([] { max(Tensor::empty({2, 0}), {1}); }), HasSubstr("(2, 0)"));
  EXPECT_EQ(max(Tensor::empty({0, 3}), {1}).shape(), Shape{0});
  EXPECT_THROW(argmax(Tensor::empty({2, 0})), ShapeError);
}

TEST(ReduceOps, AxesOutOfRangeOrTwice) {
  const Tensor x = Tensor::ones({2, 3});
  const std::string message = message_of<ShapeError>([&] { sum(x, {3}); });
  EXPECT_THAT(message, HasSubstr("[sum]"));
  EXPECT_THAT(message, HasSubstr("out of range"));
  EXPECT_THAT(message_of<ShapeError>([&] { mean(x, {-3}); }), HasSubstr("out of range"));
  EXPECT_THAT(message_of<ShapeError>([&] { max(x, {1, -1}); }), HasSubstr("twice"));
}

TEST(ReduceOps, Meta) {
  const MetaScope scope;
  EXPECT_EQ(sum(Tensor::empty({2, 3, 4}), {1}).shape(), (Shape{2, 4}));
}

TEST(Reduce, VarianceOfHalvesIsRoundedOnce) {
  Tensor spread = Tensor::zeros({100}, float16);
  spread.data<Float16>()[0] = to_float16(300);
  EXPECT_EQ(variance(spread).item(), 891);  // 300^2 0.01 0.99; the square alone is beyond float16
  const Tensor near = cast(Tensor::from<float>({1000, 1004, 1008, 1012}, {4}), bfloat16);
  EXPECT_EQ(variance(near).item(), 20);
}

}  // namespace
}  // namespace everyo
