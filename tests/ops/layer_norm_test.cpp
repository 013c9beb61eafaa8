#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "everyo/autograd.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;

TEST(LayerNorm, ComputesAKnownExample) {
  // Rows 1, 3 (mean 2, deviation 1) and 0, 4 (mean 2, deviation 2).
  const Tensor x = Tensor::from<double>({1, 3, 0, 4}, {2, 2});
  const Tensor weight = Tensor::from<double>({2, 3}), bias = Tensor::from<double>({1, -4});
  EXPECT_THAT(layer_norm(x, {2}, weight, bias, {.eps = 1e-300}).to_vector(), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(layer_norm(x, {2}, {}, {}, {.eps = 1e-300, .activation = Activation::relu}).to_vector(),
              ElementsAre(0, 1, 0, 1));
  // Both rows as one: mean 2, variance 10 / 4.
  EXPECT_NEAR(layer_norm(x, {2, 2}, {}, {}, {.eps = 1e-300}).to_vector()[3], 2 / std::sqrt(2.5), 1e-15);
}

TEST(LayerNorm, GradientsAreThoseOfTheDifferences) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
    check_gradients(
        [&](const std::vector<Tensor>& in) {
          return layer_norm(in[0], {2, 5}, in[1], in[2], {.eps = 1e-3, .activation = activation});
        },
        {draw({3, 2, 5}, 1), draw({2, 5}, 2), draw({2, 5}, 3)});
  }
}

TEST(LayerNorm, HalvesGiveHalvesAndParametersKeepTheirDType) {
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor x = draw({8, 6}, 1, -2, 2, dtype).set_requires_grad();
    const Tensor weight = draw({6}, 2, -2, 2, float32).set_requires_grad();
    const Tensor y = layer_norm(x, {6}, weight), seed = Tensor::ones({8, 6}, dtype);
    EXPECT_EQ(y.dtype(), dtype);
    y.backward({.seed = &seed});
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_EQ(weight.grad().dtype(), float32);
    EXPECT_EQ(y.to_vector(), cast(layer_norm(cast(x.detach(), float32), {6}, weight), dtype).to_vector());
  }
}

TEST(LayerNorm, KeepsNothingButX) {
  const Tensor x = scale(draw({64, 8}, 1, -2, 2, float32).set_requires_grad(), 1);
  EXPECT_EQ(saved_bytes(layer_norm(x, {8}, {}, {}, {.activation = Activation::relu})), 64 * 8 * 4);
}

TEST(LayerNorm, TakesEmptyBatches) {
  const Tensor weight = Tensor::ones({3}).set_requires_grad(), seed = Tensor::ones({0, 3});
  const Tensor y = layer_norm(Tensor::ones({0, 3}), {3}, weight);
  y.backward({.seed = &seed});
  EXPECT_THAT(weight.grad().to_vector(), ElementsAre(0, 0, 0));
}

TEST(GroupNorm, ComputesAKnownExample) {
  // One sample of two positions and four channels; groups 1, 3, 1, 3 and 0, 0, 4, 4.
  const Tensor x = Tensor::from<double>({1, 3, 0, 0, 1, 3, 4, 4}, {1, 2, 4});
  const Tensor weight = Tensor::from<double>({1, 2, 1, 1}), bias = Tensor::from<double>({0, 0, 0, 5});
  EXPECT_THAT(group_norm(x, 2, weight, bias, {.eps = 1e-300}).to_vector(), ElementsAre(-1, 2, -1, 4, -1, 2, 1, 6));
}

TEST(GroupNorm, OfOneGroupIsALayerNormAndOfAllChannelsAnInstanceNorm) {
  const Tensor x = draw({3, 4, 6}, 1);
  const auto one = group_norm(x, 1).to_vector(), layer = layer_norm(x, {4, 6}).to_vector();
  const auto all = group_norm(reshape(x, {3, 4, 6}), 6).to_vector();
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], layer[i], 1e-13);  // sums in another order
  for (std::int64_t n = 0; n < 3; ++n) {
    const auto instance = batch_norm(select(x, n)).y.to_vector();
    for (std::size_t i = 0; i < 24; ++i) ASSERT_EQ(all[static_cast<std::size_t>(n) * 24 + i], instance[i]);
  }
}

TEST(GroupNorm, GradientsAreThoseOfTheDifferences) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh}) {
    check_gradients(
        [&](const std::vector<Tensor>& in) {
          return group_norm(in[0], 2, in[1], in[2], {.eps = 1e-3, .activation = activation});
        },
        {draw({2, 3, 2, 6}, 1), draw({6}, 2), draw({6}, 3)});
  }
}

TEST(GroupNorm, KeepsNothingButX) {
  const Tensor x = scale(draw({4, 9, 8}, 1, -2, 2, float32).set_requires_grad(), 1);
  EXPECT_EQ(saved_bytes(group_norm(x, 2, {}, {}, {.activation = Activation::relu})), 4 * 9 * 8 * 4);
}

// Sizes are those of the run: which of them stay open is the exporter's to find out.
TEST(GroupNorm, LowersToTheSizesOfTheRun) {
  Tracer tracer;
  {
    const Scoped<&Context::tracer> scope(&tracer);
    group_norm(Tensor::ones({2, 3, 5, 4}), 2);
  }
  const Tracer::Step& step = tracer.steps.at(0);
  onnx::Graph graph;
  step.op->onnx(graph, {{"x", step.in[0].spec()}}, step.attrs.get());
  std::vector<std::vector<double>> sizes;
  for (const onnx::Constant& constant : graph.constants)
    if (constant.value.dtype() == int64) sizes.push_back(constant.value.to_vector());
  EXPECT_THAT(sizes, ElementsAre(ElementsAre(2, 15, 2, 2), ElementsAre(2, 3, 5, 4)));
}

}  // namespace
}  // namespace everyo
