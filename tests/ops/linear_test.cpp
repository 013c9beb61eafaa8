#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "everyo/ops.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Activation activations[] = {Activation::none, Activation::relu, Activation::sigmoid,
                                      Activation::tanh, Activation::gelu, Activation::silu};

Tensor drawn(const Shape& shape, DType dtype, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  const Tensor t = Tensor::empty(shape, dtype);
  visit_dtype(dtype, [&]<class T>() {
    for (T& value : t.data<T>()) value = narrow<T>(normal(engine));
  });
  return t;
}

struct Layer {
  Tensor x, weight, bias, seed;
  Layer(const Shape& sx, std::int64_t k, DType dtype, bool with_bias) {
    x = drawn(sx, dtype, 1).set_requires_grad();
    weight = drawn({sx[-1], k}, dtype, 2).set_requires_grad();
    if (with_bias) bias = drawn({k}, dtype, 3).set_requires_grad();
    Shape out = sx;
    out.set(-1, k);
    seed = drawn(out, dtype, 4);
  }
  // Output and gradients after one backward.
  std::vector<std::vector<double>> run(const Tensor& y) const {
    std::vector<std::vector<double>> all{y.to_vector()};
    y.backward({.seed = &seed});
    for (const Tensor& t : {x, weight, bias}) {
      if (t.defined()) all.push_back(t.grad().to_vector());
    }
    return all;
  }
};

Tensor composed(const Layer& l, Activation activation) {
  const Tensor z = matmul(l.x, l.weight);
  return activate(l.bias.defined() ? add(z, l.bias) : z, activation);
}

// The fused op rounds where the separate ops do: outputs and gradients have the same bits, in every dtype.
TEST(LinearOp, HasTheBitsOfItsComposition) {
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    for (const auto& [sx, k] :
         {std::pair<Shape, std::int64_t>{{32, 64}, 32}, {{32, 32}, 10}, {{3, 5, 17}, 9}, {{7}, 4}, {{300, 100}, 70}}) {
      for (const Activation activation : activations) {
        for (const bool with_bias : {true, false}) {
          SCOPED_TRACE(testing::Message() << name_of(dtype) << to_string(sx) << k << " activation "
                                          << static_cast<int>(activation) << " bias " << with_bias);
          const Layer fused(sx, k, dtype, with_bias), steps(sx, k, dtype, with_bias);
          EXPECT_EQ(fused.run(linear(fused.x, fused.weight, fused.bias, activation)),
                    steps.run(composed(steps, activation)));
        }
      }
    }
  }
}

TEST(LinearOp, IsOneOpUnlessTheActivationNeedsItsInput) {
  const Layer l({4, 3}, 2, float32, true);
  for (const Activation activation : activations) {
    Tracer tracer;
    const Scoped<&Context::tracer> scope(&tracer);
    linear(l.x, l.weight, l.bias, activation);
    EXPECT_EQ(tracer.steps.size(), activation == Activation::gelu || activation == Activation::silu ? 2u : 1u);
  }
}

TEST(LinearOp, ComputesAKnownExample) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2}), w = Tensor::from<float>({1, -1, 0.5f, -2}, {2, 2});
  const Tensor b = Tensor::from<float>({0.5f, 1});
  EXPECT_EQ(linear(x, w, b).to_vector(), (std::vector<double>{2.5, -4, 5.5, -10}));
  EXPECT_EQ(linear(x, w, b, Activation::relu).to_vector(), (std::vector<double>{2.5, 0, 5.5, 0}));
  EXPECT_EQ(linear(x, w).to_vector(), (std::vector<double>{2, -5, 5, -11}));
}

TEST(LinearOp, AddsToGradientsThatAreThere) {
  const Layer once({8, 6}, 5, float32, true), twice({8, 6}, 5, float32, true);
  const auto first = once.run(linear(once.x, once.weight, once.bias, Activation::relu));
  twice.run(linear(twice.x, twice.weight, twice.bias, Activation::relu));
  const auto second = twice.run(linear(twice.x, twice.weight, twice.bias, Activation::relu));
  for (std::size_t i = 1; i < first.size(); ++i) {
    for (std::size_t j = 0; j < first[i].size(); ++j) ASSERT_EQ(second[i][j], 2 * first[i][j]);
  }
}

TEST(LinearOp, LeavesTheArrivedGradientAsItIsWhenOthersSeeIt) {
  const Layer l({4, 3}, 2, float32, true);
  const auto before = l.seed.to_vector();
  l.run(linear(l.x, l.weight, l.bias, Activation::relu));
  EXPECT_EQ(l.seed.to_vector(), before);
}

TEST(LinearOp, GivesTheSameBitsForAnyThreads) {
  for (const DType dtype : {float32, float16}) {
    std::vector<std::vector<double>> first;
    for (const int threads : {1, 2, 4}) {
      const ThreadLimit limit(threads);
      const Layer l({2048, 64}, 33, dtype, true);
      const auto now = l.run(linear(l.x, l.weight, l.bias, Activation::relu));
      if (threads == 1) first = now;
      EXPECT_EQ(now, first) << threads;
    }
  }
}

TEST(LinearOp, PromotesMixedDTypes) {
  const Layer l({4, 3}, 2, float16, false);
  const Tensor bias = drawn({2}, float32, 9);
  EXPECT_EQ(linear(l.x, l.weight, bias).dtype(), float32);
  EXPECT_EQ(linear(l.x, l.weight).dtype(), float16);
}

TEST(LinearOp, TakesEmptyBatches) {
  const Layer l({0, 3}, 2, float32, true);
  const auto all = l.run(linear(l.x, l.weight, l.bias, Activation::relu));
  EXPECT_EQ(all[2], std::vector<double>(6));
  EXPECT_EQ(all[3], std::vector<double>(2));
}

TEST(LinearOp, SaysWhatDoesNotFit) {
  const auto run = [](const Shape& x, const Shape& w, const Shape& b, DType dtype = float32) {
    return [=] { linear(Tensor::zeros(x, dtype), Tensor::zeros(w, dtype), Tensor::zeros(b, dtype)); };
  };
  EXPECT_THAT(run({5, 3}, {4, 2}, {2}), ThrowsMessage<ShapeError>(AllOf(HasSubstr("must be 4"), HasSubstr("(5, 3)"))));
  EXPECT_THAT(run({}, {4, 2}, {2}), ThrowsMessage<ShapeError>(HasSubstr("must be 4")));
  EXPECT_THAT(run({5, 4}, {4, 2}, {3}), ThrowsMessage<ShapeError>(AllOf(HasSubstr("bias"), HasSubstr("(2,)"))));
  EXPECT_THAT(run({5, 4}, {4}, {4}), ThrowsMessage<ShapeError>(HasSubstr("two dimensions")));
  EXPECT_THAT(run({5, 4}, {4, 2}, {2}, int32), ThrowsMessage<DTypeError>(HasSubstr("int32")));
  // Also where each step promotes.
  const Tensor weight = Tensor::zeros({4, 2}, float32), bias = Tensor::zeros({3}, float32);
  EXPECT_THAT(
      [&] {
        linear(Tensor::zeros({5, 3}, float64), weight);
      },
      ThrowsMessage<ShapeError>(AllOf(HasSubstr("must be 4"), HasSubstr("(5, 3)"))));
  EXPECT_THAT(
      [&] {
        linear(Tensor::zeros({5, 4}, float64), weight, bias);
      },
      ThrowsMessage<ShapeError>(AllOf(HasSubstr("bias"), HasSubstr("(2,)"))));
}

TEST(LinearOp, KnowsItsCostAndLowering) {
  const Layer l({5, 3}, 4, float32, true);
  const Tensor* list[] = {&l.x, &l.weight, &l.bias};
  const Inputs in(list, 3);
  const Op* op = find_op("linear");
  ASSERT_NE(op, nullptr);
  Tracer tracer;
  {
    const Scoped<&Context::tracer> scope(&tracer);
    linear(l.x, l.weight, l.bias, Activation::relu);
  }
  const Tracer::Step& step = tracer.steps.at(0);
  const Specs out = step.op->infer(in, step.attrs.get());
  EXPECT_EQ(step.op->cost(in, out, step.attrs.get()).flops, 5 * 4 * (2.0 * 3 + 2));
  EXPECT_EQ(step.op->cost(in, out, step.attrs.get()).bytes, 4.0 * (15 + 12 + 4 + 20));
  onnx::Graph graph;
  const onnx::Values lowered =
      step.op->onnx(graph, {{"x", l.x.spec()}, {"w", l.weight.spec()}, {"b", l.bias.spec()}}, step.attrs.get());
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[0].type, "MatMul");
  EXPECT_EQ(graph.nodes[1].type, "Add");
  EXPECT_EQ(graph.nodes[2].type, "Relu");
  EXPECT_EQ(lowered[0].spec, out[0]);
}

TEST(LinearOp, RefusesAResultThatIsTooLarge) {
  const Tensor x = Tensor::zeros({std::int64_t{1} << 40, 0}), w = Tensor::zeros({0, std::int64_t{1} << 22});
  EXPECT_THROW(linear(x, w), ShapeError);
  EXPECT_THROW(matmul(x, w), ShapeError);
}

}  // namespace
}  // namespace everyo
