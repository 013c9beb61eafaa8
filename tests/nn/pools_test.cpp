#include "everyo/nn/pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/nn/layers.h"
#include "everyo/nn/sequential.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing_nn::bits;
using testing_nn::error_of;
using testing_nn::ramp;

TEST(Pools, AreTheFunctions) {
  const Tensor x = ramp({2, 7, 6, 3});
  EXPECT_EQ(bits(MaxPool2D()(x)), bits(max_pool2d(x)));
  EXPECT_EQ(bits(MaxPool2D(3, {.stride = 2, .padding = "same"})(x)),
            bits(max_pool2d(x, 3, {.stride = 2, .padding = "same"})));
  EXPECT_EQ(bits(MaxPool2D(2, {.dilation = 2, .ceil_mode = true})(x)),
            bits(max_pool2d(x, 2, {.dilation = 2, .ceil_mode = true})));
  EXPECT_EQ(bits(AvgPool2D()(x)), bits(avg_pool2d(x)));
  EXPECT_EQ(bits(AvgPool2D({3, 2}, {.stride = 1, .padding = 1, .count_padding = true})(x)),
            bits(avg_pool2d(x, {3, 2}, {.stride = 1, .padding = 1, .count_padding = true})));
  EXPECT_EQ(bits(AdaptiveAvgPool2D({3, 4})(x)), bits(adaptive_avg_pool2d(x, {3, 4})));
  EXPECT_EQ(bits(GlobalAvgPool2D()(x)), bits(global_avg_pool2d(x)));
}

TEST(Pools, StandInASequence) {
  Sequential model(MaxPool2D(), AvgPool2D(2, {.stride = 1}), Flatten(), Linear(8, 3, {.seed = 1}));
  EXPECT_EQ(model(ramp({5, 6, 6, 2})).shape(), (Shape{5, 3}));
  EXPECT_EQ(model.parameters().size(), 2u);
}

TEST(Pools, SizesThatFitNoImageAreRefusedAtOnce) {
  EXPECT_THAT(error_of([] { const MaxPool2D none(0); }),
              testing::AllOf(HasSubstr("[MaxPool2D] the window is (0, 0)"), HasSubstr("must be positive")));
  EXPECT_THAT(error_of([] { const AvgPool2D none(2, {.stride = 0}); }), HasSubstr("[AvgPool2D] stride is (0, 0)"));
  EXPECT_THAT(error_of([] { const MaxPool2D none(2, {.padding = 2}); }), HasSubstr("must be smaller"));
  EXPECT_THAT(error_of([] { const AvgPool2D none(2, {.padding = -1}); }), HasSubstr("must not be negative"));
  EXPECT_THAT(error_of([] { const AdaptiveAvgPool2D none({2, 0}); }), HasSubstr("both sizes must be positive"));
  EXPECT_THAT(error_of([] { (void)MaxPool2D(9)(Tensor::ones({1, 4, 4, 1})); }), HasSubstr("larger than the padded"));
}

}  // namespace
}  // namespace everyo
