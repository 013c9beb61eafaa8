#include "everyo/nn/layers.h"

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

TEST(Linear, WeightsAreNumPysAndBiasZeros) {
  Linear layer(4, 3, {.seed = 9});
  Generator generator(9);
  const double limit = std::sqrt(6.0 / 4);
  for (const float w : layer.weight.tensor().data<float>())
    EXPECT_EQ(w, static_cast<float>(generator.uniform(-limit, limit)));
  EXPECT_EQ(layer.bias->tensor().to_vector(), (std::vector<double>{0, 0, 0}));
  const StateDict state = layer.state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "weight");
  EXPECT_EQ(state[0].second.shape(), (Shape{4, 3}));
  EXPECT_EQ(state[1].first, "bias");
}

TEST(Linear, OptionsAndAnyLeadingDimensions) {
  const Linear layer(4, 3, {.seed = 9, .bias = false, .initializer = "ones", .dtype = float64});
  EXPECT_FALSE(layer.bias);
  const Tensor y = layer(Tensor::ones({2, 5, 4}, float64));
  EXPECT_EQ(y.shape(), (Shape{2, 5, 3}));
  for (const double v : y.to_vector()) EXPECT_EQ(v, 4);
  EXPECT_EQ(layer(Tensor::ones({4}, float64)).shape(), (Shape{3}));
  EXPECT_EQ(Linear(4, 3, {.initializer = init::constant(2)}).weight.tensor().to_vector(), std::vector<double>(12, 2));
}

TEST(Linear, WrongSizesAreNamed) {
  const Linear layer(4, 3, {.seed = 9});
  EXPECT_EQ(error_of([&] {
              (void)layer(Tensor::ones({2, 3}));
            }),
            "[Linear] x has shape (2, 3); its last dimension must be 4, the layer's in_features");
  EXPECT_THROW((void)layer(Tensor::scalar(1)), ShapeError);
  EXPECT_THAT(error_of([] { const Linear none(0, 3); }), HasSubstr("in_features 0 and out_features 3"));
  EXPECT_THAT(error_of([] { const Linear none(2, 2, {.initializer = "xavier"}); }), HasSubstr("Unknown initializer"));
  EXPECT_THROW(Linear(2, 2, {.dtype = int32}), DTypeError);
}

TEST(Activations, AreTheFunctions) {
  const Tensor x = ramp({3, 5});
  EXPECT_EQ(bits(ReLU()(x)), bits(relu(x)));
  EXPECT_EQ(bits(Sigmoid()(x)), bits(sigmoid(x)));
  EXPECT_EQ(bits(Tanh()(x)), bits(tanh(x)));
  EXPECT_EQ(bits(GELU()(x)), bits(gelu(x)));
  EXPECT_EQ(bits(SiLU()(x)), bits(silu(x)));
}

TEST(Activations, SoftmaxTakesItsAxis) {
  const Tensor x = ramp({3, 5});
  EXPECT_EQ(bits(Softmax()(x)), bits(softmax(x, -1)));
  EXPECT_EQ(bits(Softmax(0)(x)), bits(softmax(x, 0)));
  EXPECT_EQ(bits(LogSoftmax()(x)), bits(log_softmax(x, -1)));
  EXPECT_EQ(bits(LogSoftmax(0)(x)), bits(log_softmax(x, 0)));
  EXPECT_NE(bits(Softmax(0)(x)), bits(Softmax()(x)));
  EXPECT_THROW((void)Softmax(2)(x), ShapeError);
}

TEST(Flatten, JoinsAxesFromTheStartOn) {
  const Tensor x = ramp({2, 3, 4, 5});
  EXPECT_EQ(Flatten()(x).shape(), (Shape{2, 60}));
  EXPECT_EQ(Flatten(2)(x).shape(), (Shape{2, 3, 20}));
  EXPECT_EQ(Flatten(0)(x).shape(), (Shape{120}));
  EXPECT_EQ(bits(Flatten()(x)), bits(x));
  EXPECT_EQ(Flatten()(ramp({0, 3, 4})).shape(), (Shape{0, 12}));
}

TEST(Unflatten, CutsTheLastAxis) {
  const Tensor x = ramp({2, 64});
  EXPECT_EQ(Unflatten({8, 8, 1})(x).shape(), (Shape{2, 8, 8, 1}));
  EXPECT_EQ(bits(Flatten()(Unflatten({8, 4, 2})(x))), bits(x));
  EXPECT_EQ(error_of([&] {
              (void)Unflatten({7, 9})(x);
            }),
            "[Unflatten] x has shape (2, 64); its last dimension must be 63, to become (7, 9)");
  EXPECT_THROW((void)Unflatten({1})(Tensor::scalar(1)), ShapeError);
}

TEST(Dropout, IsTheIdentityInEvalAndForPZero) {
  Dropout half;
  EXPECT_EQ(half.p(), 0.5);
  const Tensor x = ramp({4, 64});
  half.eval();
  EXPECT_EQ(half(x).body(), x.body());
  EXPECT_EQ(Dropout(0)(x).body(), x.body());
}

TEST(Dropout, ZeroesAFractionAndScalesTheRest) {
  const Tensor y = Dropout(0.25)(Tensor::ones({100, 100}));
  std::size_t zeros = 0;
  for (const float v : y.data<float>()) {
    if (v == 0)
      ++zeros;
    else
      EXPECT_EQ(v, static_cast<float>(1 / 0.75));
  }
  EXPECT_NEAR(static_cast<double>(zeros), 2500, 260);  // six standard deviations of 10,000 draws
}

struct TwoDropouts : Module<TwoDropouts> {
  void visit(Visitor& v) { v("a", a)("b", b); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return stack_of(a(x), b(x)); }
  static Tensor stack_of(const Tensor& x, const Tensor& y) { return x * 2 + y; }
  Dropout a{0.5}, b{0.5};
};

TEST(Dropout, MasksFollowSeedStepPathAndMicroBatch) {
  const Dropout layer(0.5);
  const Tensor x = Tensor::ones({8, 32});
  const std::string mask = bits(layer(x));
  EXPECT_EQ(bits(layer(x)), mask);
  const auto with = [&]<auto field>(std::integral_constant<decltype(field), field>, auto value) {
    const Scoped<field> scope(value);
    return bits(layer(x));
  };
  EXPECT_NE(with(std::integral_constant<std::uint64_t Context::*, &Context::seed>(), std::uint64_t{1}), mask);
  EXPECT_NE(with(std::integral_constant<std::uint64_t Context::*, &Context::step>(), std::uint64_t{1}), mask);
  EXPECT_NE(with(std::integral_constant<std::int32_t Context::*, &Context::micro_batch>(), 1), mask);
  EXPECT_NE(bits(Dropout(0.5, {.seed = 1})(x)), mask);
  EXPECT_EQ(bits(Dropout(0.5, {.seed = 0})(x)), mask);
  // Two layers of one model drop different elements, from the first call on: some keep only one of the two.
  const TwoDropouts two;
  const Tensor both = two(x);
  std::size_t differ = 0;
  for (const float v : both.data<float>())
    if (v == 2 || v == 4) ++differ;
  EXPECT_GT(differ, 64u);  // 128 expected of 256
}

TEST(Dropout, PIsChecked) {
  EXPECT_EQ(error_of([] { const Dropout all(1); }), "[Dropout] p is 1; it must be in [0, 1)");
  EXPECT_THROW(Dropout(-0.1), ValueError);
  EXPECT_THROW(Dropout(std::nan("")), ValueError);
}

}  // namespace
}  // namespace everyo
