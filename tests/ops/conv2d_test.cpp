#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "everyo/ops.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Activation activations[] = {Activation::none, Activation::relu, Activation::sigmoid,
                                      Activation::tanh, Activation::gelu, Activation::silu};

TEST(Conv2d, ComputesAKnownExample) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const Tensor weight = Tensor::from<float>({1, 0, 0, -1}, {2, 2, 1, 1});  // not turned over: a - d
  EXPECT_THAT(conv2d(x, weight).to_vector(), ElementsAre(-4, -4, -4, -4));
  EXPECT_THAT(conv2d(x, weight, Tensor::from<float>({5})).to_vector(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(conv2d(x, weight, {}, {.activation = Activation::relu}).to_vector(), ElementsAre(0, 0, 0, 0));
  // The odd cell of "same" goes to the bottom and right.
  EXPECT_THAT(conv2d(x, weight, {}, {.padding = "same"}).to_vector(), ElementsAre(-4, -4, 3, -4, -4, 6, 7, 8, 9));
  EXPECT_THAT(conv2d(x, weight, {}, {.stride = 2, .padding = "same"}).to_vector(), ElementsAre(-4, 3, 7, 9));
  EXPECT_THAT(conv2d(x, weight, {}, {.dilation = 2}).to_vector(), ElementsAre(-8));
}

TEST(Conv2d, GroupsSeeTheirOwnChannels) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {1, 1, 1, 4});
  const Tensor weight = Tensor::from<float>({1, 10, 1, 10}, {1, 1, 2, 2});  // each output sums two channels
  EXPECT_THAT(conv2d(x, weight, {}, {.groups = 2}).to_vector(), ElementsAre(3, 70));
}

TEST(Conv2d, HasTheGradientsOfDifferences) {
  const auto check = [](const Shape& x, const Shape& weight, const Conv2dOptions& options) {
    check_gradients([&](const std::vector<Tensor>& in) { return conv2d(in[0], in[1], in[2], options); },
                    {draw(x, 1), draw(weight, 2), draw({weight[3]}, 3)});
  };
  check({2, 5, 4, 2}, {3, 3, 2, 3}, {.padding = "same"});
  check({1, 6, 5, 3}, {2, 3, 3, 2}, {.stride = {3, 2}, .padding = {1, 0, 0, 2}});
  check({2, 7, 5, 4}, {3, 2, 2, 6}, {.padding = 1, .dilation = 2, .groups = 2});
  check({1, 4, 4, 3}, {3, 3, 1, 3}, {.groups = 3});
  for (const Activation activation : activations)
    check({2, 4, 3, 2}, {2, 2, 2, 3}, {.padding = 1, .activation = activation});
}

struct Operands {
  Tensor x, weight, bias;
  std::vector<std::vector<double>> of(const Tensor& y) const {
    std::vector<std::vector<double>> all{y.to_vector()};
    const Tensor seed = draw(y.shape(), 9, -2, 2, y.dtype());
    y.backward({.seed = &seed});
    for (const Tensor& t : {x, weight, bias})
      if (t.requires_grad()) all.push_back(t.grad().to_vector());
    return all;
  }
};
Operands operands(const Shape& x, const Shape& weight, DType dtype) {
  return {draw(x, 1, -2, 2, dtype).set_requires_grad(), draw(weight, 2, -1, 1, dtype).set_requires_grad(),
          draw({weight[3]}, 3, -1, 1, dtype).set_requires_grad()};
}

TEST(Conv2d, WithAnActivationHasTheBitsOfTheTwoOps) {
  for (const DType dtype : {float32, float64, float16, bfloat16})
    for (const Activation activation : activations) {
      const Operands fused = operands({5, 9, 8, 3}, {3, 3, 3, 17}, dtype),
                     steps = operands({5, 9, 8, 3}, {3, 3, 3, 17}, dtype);
      EXPECT_EQ(fused.of(conv2d(fused.x, fused.weight, fused.bias, {.padding = 1, .activation = activation})),
                steps.of(activate(conv2d(steps.x, steps.weight, steps.bias, {.padding = 1}), activation)))
          << name_of(dtype) << ", activation " << static_cast<int>(activation);
    }
}

TEST(Conv2d, IsOneOpUnlessTheActivationIsNotReLU) {
  const Operands run = operands({1, 4, 4, 2}, {3, 3, 2, 3}, float32);
  for (const Activation activation : activations) {
    Tracer tracer;
    const Scoped<&Context::tracer> scope(&tracer);
    conv2d(run.x, run.weight, run.bias, {.activation = activation});
    EXPECT_EQ(tracer.steps.size(), activation == Activation::none || activation == Activation::relu ? 1u : 2u);
  }
}

TEST(Conv2d, GivesTheSameBitsForAnyThreads) {
  for (const DType dtype : {float32, bfloat16}) {
    std::vector<std::vector<double>> first;
    for (const int threads : {1, 2, 4}) {
      const ThreadLimit limit(threads);
      const Operands run = operands({17, 32, 30, 16}, {3, 3, 16, 24}, dtype);
      const auto now = run.of(conv2d(run.x, run.weight, run.bias, {.padding = "same", .activation = Activation::relu}));
      if (threads == 1) first = now;
      EXPECT_EQ(now, first) << name_of(dtype) << ", " << threads << " threads";
    }
  }
}

TEST(Conv2d, AddsToGradientsThatAreThere) {
  for (const DType dtype : {float32, float64, float16}) {
    const Operands once = operands({3, 6, 5, 4}, {3, 3, 4, 8}, dtype),
                   twice = operands({3, 6, 5, 4}, {3, 3, 4, 8}, dtype);
    const auto first = once.of(conv2d(once.x, once.weight, once.bias));
    twice.of(conv2d(twice.x, twice.weight, twice.bias));
    const auto second = twice.of(conv2d(twice.x, twice.weight, twice.bias));
    for (std::size_t i = 1; i < first.size(); ++i)
      for (std::size_t j = 0; j < first[i].size(); ++j) ASSERT_EQ(second[i][j], 2 * first[i][j]) << name_of(dtype);
  }
}

TEST(Conv2d, GivesOnlyTheGradientsThatAreWanted) {
  Operands run = operands({2, 5, 5, 3}, {3, 3, 3, 4}, float32);
  run.x = draw({2, 5, 5, 3}, 1, -2, 2, float32);
  EXPECT_EQ(run.of(conv2d(run.x, run.weight, run.bias)).size(), 3u);
  EXPECT_FALSE(run.x.grad().defined());
  run.weight = draw({3, 3, 3, 4}, 2, -1, 1, float32);
  EXPECT_EQ(run.of(conv2d(run.x, run.weight, run.bias)).size(), 2u);
}

TEST(Conv2d, PromotesMixedDTypes) {
  const Tensor x = draw({1, 4, 4, 2}, 1, -2, 2, float16), weight = draw({3, 3, 2, 3}, 2, -1, 1, float16);
  const Tensor bias = draw({3}, 3, -1, 1, float32), wide = cast(weight, float32);
  EXPECT_EQ(conv2d(x, weight).dtype(), float16);
  EXPECT_EQ(conv2d(x, weight, bias).to_vector(), add(conv2d(x, weight), bias).to_vector());
  EXPECT_EQ(conv2d(x, weight, bias).dtype(), float32);
  EXPECT_EQ(conv2d(x, wide, bias).to_vector(), conv2d(cast(x, float32), wide, bias).to_vector());
  EXPECT_EQ(conv2d(x, wide, cast(bias, float64), {.activation = Activation::relu}).dtype(), float64);
}

TEST(Conv2d, TakesEmptyBatchesAndImages) {
  const Operands run = operands({0, 4, 4, 2}, {3, 3, 2, 3}, float32);
  const auto all = run.of(conv2d(run.x, run.weight, run.bias, {.activation = Activation::relu}));
  EXPECT_EQ(all[2], std::vector<double>(54));
  EXPECT_EQ(all[3], std::vector<double>(3));
  EXPECT_EQ(conv2d(Tensor::ones({2, 0, 5, 2}), run.weight, {}, {.padding = "same"}).shape(), (Shape{2, 0, 5, 3}));
}

TEST(Conv2d, SaysWhatDoesNotFit) {
  const auto run = [](const Shape& x, const Shape& weight, const Conv2dOptions& options = {}) {
    return [=] { conv2d(Tensor::zeros(x), Tensor::zeros(weight), {}, options); };
  };
  EXPECT_THAT(run({1, 5, 5, 4}, {3, 3, 1, 8}, {.groups = 2}),
              ThrowsMessage<ShapeError>(HasSubstr("4 channel(s), the kernel expects 2 (1 in each of 2 groups)")));
  EXPECT_THAT(run({1, 5, 5, 1}, {3, 3, 1, 1}, {.padding = {0, 0, -1, 0}}), ThrowsMessage<ShapeError>(HasSubstr("-1")));
  EXPECT_THAT(
      run({1, 5, 5, 1}, {3, 3, 1, 1}, {.dilation = 3}),
      ThrowsMessage<ShapeError>(HasSubstr("7 by 7 cells with its dilation, does not fit the padded image of 5 by 5")));
}

TEST(Conv2d, IsLoweredToAConvBetweenTransposes) {
  const Operands run = operands({2, 5, 6, 4}, {3, 2, 2, 6}, float32);
  Tracer tracer;
  {
    const Scoped<&Context::tracer> scope(&tracer);
    conv2d(run.x, run.weight, run.bias,
           {.stride = {2, 1}, .padding = "same", .dilation = {2, 1}, .groups = 2, .activation = Activation::relu});
  }
  const Tracer::Step& step = tracer.steps.at(0);
  onnx::Graph graph;
  step.op->onnx(graph, {{"x", run.x.spec()}, {"w", run.weight.spec()}, {"b", run.bias.spec()}}, step.attrs.get());
  std::vector<std::string> types;
  for (const onnx::Node& node : graph.nodes) types.push_back(node.type);
  EXPECT_THAT(types, ElementsAre("Transpose", "Transpose", "Conv", "Relu", "Transpose"));
  const onnx::Node& conv = graph.nodes[2];
  const auto attribute = [&](std::string_view name) {
    for (const onnx::Attribute& a : conv.attributes)
      if (a.name == name) return a.value;
    return onnx::AttributeValue(std::string("missing"));
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(attribute("pads"), onnx::AttributeValue(Numbers{2, 0, 2, 1}));
  EXPECT_EQ(attribute("strides"), onnx::AttributeValue(Numbers{2, 1}));
  EXPECT_EQ(attribute("dilations"), onnx::AttributeValue(Numbers{2, 1}));
  EXPECT_EQ(attribute("group"), onnx::AttributeValue(std::int64_t{2}));
  EXPECT_THAT(conv.inputs, ElementsAre(graph.nodes[0].outputs[0], graph.nodes[1].outputs[0], "b"));
}

}  // namespace
}  // namespace everyo
