#include "everyo/nn/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "everyo/random.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing_nn::bits;
using testing_nn::error_of;
using testing_nn::ramp;
using testing_nn::total;

TEST(Conv2D, WeightsAreNumPysAndBiasZeros) {
  Conv2D layer(3, 4, {2, 3}, {.seed = 9});
  Generator generator(9);
  const double limit = std::sqrt(6.0 / (2 * 3 * 3));  // the fan in: taps times channels
  for (const float w : layer.weight.tensor().data<float>())
    EXPECT_EQ(w, static_cast<float>(generator.uniform(-limit, limit)));
  EXPECT_EQ(layer.bias->tensor().to_vector(), (std::vector<double>{0, 0, 0, 0}));
  const StateDict state = layer.state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "weight");
  EXPECT_EQ(state[0].second.shape(), (Shape{2, 3, 3, 4}));
  EXPECT_EQ(state[1].first, "bias");
  EXPECT_EQ(Conv2D(6, 4, 3, {.groups = 2}).weight.shape(), (Shape{3, 3, 3, 4}));
  EXPECT_EQ(Conv2D(1, 8).weight.shape(), (Shape{3, 3, 1, 8}));
}

TEST(Conv2D, RunsItsConvolutionWithEveryOption) {
  const Conv2D layer(4, 6, 3, {.stride = {2, 1}, .padding = "same", .dilation = {1, 2}, .groups = 2, .seed = 5});
  EXPECT_EQ(layer.kernel_size(), Size2D(3, 3));
  EXPECT_EQ(layer.stride(), Size2D(2, 1));
  EXPECT_EQ(layer.dilation(), Size2D(1, 2));
  EXPECT_EQ(layer.padding(), Padding("same"));
  EXPECT_EQ(layer.groups(), 2);
  const Tensor x = ramp({2, 7, 6, 4});
  const Conv2dOptions options{.stride = {2, 1}, .padding = "same", .dilation = {1, 2}, .groups = 2};
  const Tensor y = conv2d(x, layer.weight, *layer.bias, options);
  EXPECT_EQ(y.shape(), (Shape{2, 4, 6, 6}));
  EXPECT_EQ(bits(layer(x)), bits(y));
  for (const Activation activation : {Activation::relu, Activation::gelu})
    EXPECT_EQ(bits(layer(x, activation)), bits(activate(y, activation)));
  const Conv2D plain(4, 2, 1, {.bias = false, .initializer = "ones", .dtype = float64});
  EXPECT_FALSE(plain.bias);
  for (const double v : plain(Tensor::ones({1, 2, 2, 4}, float64)).to_vector()) EXPECT_EQ(v, 4);
}

TEST(Conv2D, ClonesAndLearns) {
  Conv2D layer(2, 3, 3, {.padding = 1, .seed = 5});
  const Conv2D copy = layer.clone();
  const Tensor x = ramp({2, 4, 5, 2});
  EXPECT_EQ(bits(copy(x)), bits(layer(x)));
  total(layer(x)).backward();
  for (const Tensor& slot : layer.parameters()) EXPECT_EQ(slot.grad().shape(), slot.shape());
  EXPECT_EQ(layer.bias->tensor().grad().to_vector(),
            std::vector<double>(3, 40));  // one for each of 2 x 4 x 5 positions
}

TEST(Conv2D, WrongSizesAreNamed) {
  const Conv2D layer(3, 4, 3, {.seed = 9});
  EXPECT_EQ(error_of([&] {
              (void)layer(Tensor::ones({2, 5, 5, 1}));
            }),
            "[Conv2D] x has shape (2, 5, 5, 1); its last dimension must be 3 channel(s), the layer's in_channels");
  EXPECT_THAT(error_of([&] { (void)layer(Tensor::ones({5, 5, 3})); }), HasSubstr("4-D tensor"));
  EXPECT_THAT(error_of([&] { (void)layer(Tensor::ones({2, 2, 5, 3})); }), HasSubstr("does not fit"));
  EXPECT_THAT(error_of([] { const Conv2D none(0, 3); }), HasSubstr("positive channel counts"));
  EXPECT_THAT(error_of([] { const Conv2D none(3, -1); }), HasSubstr("positive channel counts"));
  EXPECT_THAT(error_of([] { const Conv2D none(3, 3, {3, 0}); }), HasSubstr("kernel_size is (3, 0); both must be pos"));
  EXPECT_THAT(error_of([] { const Conv2D none(3, 3, 3, {.stride = 0}); }), HasSubstr("must be positive"));
  EXPECT_THAT(error_of([] { const Conv2D none(3, 3, 3, {.dilation = -1}); }), HasSubstr("must be positive"));
  EXPECT_THAT(error_of([] { const Conv2D none(3, 3, 3, {.groups = 0}); }), HasSubstr("must be positive"));
  EXPECT_THAT(error_of([] { const Conv2D none(4, 3, 3, {.groups = 2}); }), HasSubstr("do not divide"));
  EXPECT_THAT(error_of([] { const Conv2D none(4, 3, 3, {.padding = "full"}); }), HasSubstr("Unknown padding"));
  EXPECT_THROW(Conv2D(2, 2, 3, {.dtype = int32}), DTypeError);
}

}  // namespace
}  // namespace everyo
