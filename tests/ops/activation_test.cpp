#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;

constexpr Activation all[] = {Activation::none, Activation::relu, Activation::sigmoid,
                              Activation::tanh, Activation::gelu, Activation::silu};

TEST(Activations, Gradients) {
  for (const Activation activation : all) {
    if (activation == Activation::none) continue;  // x itself
    check_gradients([=](const std::vector<Tensor>& x) { return activate(x[0], activation); }, {draw({5, 9}, 1, -3, 3)});
  }
}

TEST(Activations, Values) {
  const Tensor x = Tensor::from<double>({-1, 0, 2});
  EXPECT_THAT(relu(x).to_vector(), ElementsAre(0, 0, 2));
  EXPECT_DOUBLE_EQ(sigmoid(x).to_vector()[2], 1 / (1 + std::exp(-2)));
  EXPECT_DOUBLE_EQ(tanh(x).to_vector()[0], std::tanh(-1));
  EXPECT_DOUBLE_EQ(silu(x).to_vector()[2], 2 / (1 + std::exp(-2)));
  EXPECT_DOUBLE_EQ(gelu(x).to_vector()[2], 1 + std::erf(std::sqrt(2)));
  EXPECT_THAT(activate(x, Activation::none).to_vector(), ElementsAre(-1, 0, 2));
  EXPECT_EQ(sigmoid(Tensor::scalar(800)).item(), 1);
  EXPECT_EQ(sigmoid(Tensor::scalar(-800)).item(), 0);
}

TEST(Activations, FollowTheInput) {
  for (const Activation activation : all)
    for (const DType dtype : {float32, float64, float16, bfloat16})
      EXPECT_EQ(activate(Tensor::ones({3}, dtype), activation).dtype(), dtype);
  EXPECT_EQ(sigmoid(Tensor::ones({3}, int64)).dtype(), float32);
  EXPECT_EQ(relu(Tensor::ones({3}, int64)).dtype(), int64);
}

TEST(Activations, ReluKeepsItsOutputOnly) {
  // Saved by value, so changing the input in place afterwards is no error; gelu saves its input, and refuses.
  const Tensor leaf = Tensor::ones({3});
  leaf.set_requires_grad();
  const Tensor seed = Tensor::ones({3});
  const Tensor x = leaf * 2.0, y = relu(x);
  x.write<float>()[0] = 7;
  y.backward({.seed = &seed});
  EXPECT_THAT(leaf.grad().to_vector(), ElementsAre(2, 2, 2));
  const Tensor x2 = leaf * 2.0, y2 = gelu(x2);
  x2.write<float>()[0] = 7;
  EXPECT_THROW(y2.backward({.seed = &seed}), StateError);
}

}  // namespace
}  // namespace everyo
