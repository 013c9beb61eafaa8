#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "everyo/autograd.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using testing::ElementsAre;

Tensor normal(const Shape& shape, unsigned seed, double mean = 0, DType dtype = float32) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> draw(mean, 1);
  const Tensor t = Tensor::empty(shape, dtype);
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_v<T>))
      for (T& v : t.data<T>()) v = narrow<T>(draw(engine));
  });
  return t;
}

TEST(BatchNorm, ComputesAKnownExample) {
  // Channels 1, 3 and 2, -2: means 2 and 0, biased variances 1 and 4, unbiased 2 and 8.
  const Tensor x = Tensor::from<double>({1, 2, 3, -2}, {2, 2});
  const Tensor weight = Tensor::from<double>({2, 3}), bias = Tensor::from<double>({10, -1});
  const BatchNormResult r = batch_norm(x, weight, bias, {.eps = 1e-300});
  EXPECT_THAT(r.y.to_vector(), ElementsAre(8, 2, 12, -4));
  EXPECT_THAT(r.mean.to_vector(), ElementsAre(2, 0));
  EXPECT_THAT(r.variance.to_vector(), ElementsAre(2, 8));
  EXPECT_THAT(batch_norm(x, weight, bias, {.eps = 1e-300, .activation = Activation::relu}).y.to_vector(),
              ElementsAre(8, 2, 12, 0));
  EXPECT_THAT(batch_norm(x, Tensor::from<double>({1, 0}), Tensor::from<double>({4, 1}), weight, bias, {.eps = 1e-300})
                  .to_vector(),
              ElementsAre(10, 5, 12, -7));
}

TEST(BatchNorm, GradientsAreThoseOfTheDifferences) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh}) {
    const NormOptions options{.eps = 1e-3, .activation = activation};
    everyo_test::check_gradients(
        [&](const std::vector<Tensor>& in) { return batch_norm(in[0], in[1], in[2], options).y; },
        {everyo_test::draw({3, 2, 2, 5}, 1), everyo_test::draw({5}, 2), everyo_test::draw({5}, 3)});
    everyo_test::check_gradients(
        [&](const std::vector<Tensor>& in) {
          return batch_norm(in[0], Tensor::full({5}, 0.3, float64), Tensor::full({5}, 0.7, float64), in[1], in[2],
                            options);
        },
        {everyo_test::draw({3, 2, 2, 5}, 1), everyo_test::draw({5}, 2), everyo_test::draw({5}, 3)});
  }
}

// The output of float32 x of mean 1e4 and deviation 1 is the exact one of these very x: to 6 digits of 1, though x's
// own last place is 1e-3.
TEST(BatchNorm, KeepsItsDigitsFarFromZero) {
  const Tensor x = normal({4096, 8}, 1, 1e4);
  const auto got = batch_norm(x).y.to_vector(), want = batch_norm(cast(x, float64)).y.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-6);
  // And so in the gradient, which is a sum over all of them.
  const Tensor seed = normal({4096, 8}, 2);
  const auto gradient = [&](DType dtype) {
    const Tensor leaf = cast(x, dtype).copy().set_requires_grad(), g = cast(seed, dtype);
    batch_norm(leaf).y.backward({.seed = &g});
    return leaf.grad().to_vector();
  };
  const auto got_grad = gradient(float32), want_grad = gradient(float64);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got_grad[i], want_grad[i], 3e-6);
}

TEST(BatchNorm, HalvesGiveHalvesAndFloat32Statistics) {
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor x = normal({64, 3}, 1, 0, dtype).set_requires_grad();
    const Tensor weight = Tensor::full({3}, 1.7).set_requires_grad(), bias = Tensor::full({3}, 0.1).set_requires_grad();
    const BatchNormResult r = batch_norm(x, weight, bias, {.activation = Activation::relu});
    EXPECT_EQ(r.y.dtype(), dtype);
    EXPECT_EQ(r.mean.dtype(), float32);
    EXPECT_EQ(r.variance.dtype(), float32);
    EXPECT_FALSE(r.mean.requires_grad());
    const Tensor seed = Tensor::ones({64, 3}, dtype);
    r.y.backward({.seed = &seed});
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_EQ(weight.grad().dtype(), float32);
    // The same numbers as of the same x in float32, then rounded.
    const Tensor wide = batch_norm(cast(x.detach(), float32), weight, bias, {.activation = Activation::relu}).y;
    EXPECT_EQ(r.y.to_vector(), cast(wide, dtype).to_vector());
  }
}

// A float16 sum stops at 2048, and a variance of 1e5 rows cannot be divided by a float16 count.
TEST(BatchNorm, N06N09OfManyFloat16Rows) {
  const Tensor x = Tensor::empty({100000, 1}, float16);
  const auto values = x.data<Float16>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = narrow<Float16>(i % 2 == 0 ? 1.0f : 3.0f);
  const BatchNormResult r = batch_norm(x, {}, {}, {.eps = 1e-12});
  EXPECT_EQ(r.mean.item(), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(r.variance.item()), 100000.0f / 99999);
  EXPECT_EQ(r.y.to_vector()[0], -1);
  EXPECT_EQ(r.y.to_vector()[1], 1);
}

TEST(BatchNorm, WithReLUKeepsXAndNotY) {
  const Tensor x = scale(normal({256, 8}, 1).set_requires_grad(), 1);
  const Tensor y = batch_norm(x, {}, {}, {.activation = Activation::relu}).y;
  // x in float32, and a mean and a variance of each channel in float64.
  EXPECT_EQ(saved_bytes(y), 256 * 8 * 4 + 2 * 8 * 8);
}

TEST(BatchNorm, AnEmptyBatchIsEmptyAndTeachesNothing) {
  const Tensor weight = Tensor::ones({3}).set_requires_grad(), bias = Tensor::ones({3}).set_requires_grad();
  const BatchNormResult r = batch_norm(Tensor::ones({0, 3}), weight, bias, {.activation = Activation::relu});
  EXPECT_EQ(r.y.shape(), (Shape{0, 3}));
  EXPECT_THAT(r.mean.to_vector(), ElementsAre(0, 0, 0));
  const Tensor seed = Tensor::ones({0, 3});
  r.y.backward({.seed = &seed});
  EXPECT_THAT(weight.grad().to_vector(), ElementsAre(0, 0, 0));
  EXPECT_THAT(bias.grad().to_vector(), ElementsAre(0, 0, 0));
}

TEST(BatchNorm, AddsToGradientsThatAreThere) {
  const Tensor x = normal({16, 3}, 1), weight = Tensor::ones({3}).set_requires_grad(), seed = normal({16, 3}, 2);
  const auto run = [&] { batch_norm(x, weight).y.backward({.seed = &seed}); };
  run();
  const auto once = weight.grad().to_vector();
  run();
  const auto twice = weight.grad().to_vector();
  for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(twice[c], 2 * once[c]);
}

TEST(BatchNorm, LowersToOneScaleAndShift) {
  Tracer tracer;
  {
    const Scoped<&Context::tracer> scope(&tracer);
    batch_norm(Tensor::ones({2, 3}), Tensor::ones({3}), Tensor::ones({3}), Tensor::ones({3}), Tensor::ones({3}));
  }
  const Tracer::Step& step = tracer.steps.at(0);
  onnx::Graph graph;
  onnx::Values in;
  for (std::size_t i = 0; i < step.in.size(); ++i) in.push_back({"in" + std::to_string(i), step.in[i].spec()});
  step.op->onnx(graph, in, step.attrs.get());
  std::vector<std::string> with_x;  // all else can be folded into constants
  for (const onnx::Node& node : graph.nodes)
    if (node.inputs[0] == "in0" || node.outputs == graph.nodes.back().outputs) with_x.push_back(node.type);
  EXPECT_THAT(with_x, ElementsAre("Mul", "Add"));
}

TEST(BatchNorm, TakesNoChannels) {
  const Tensor x = Tensor::zeros({4, 0});
  EXPECT_EQ(batch_norm(x).y.shape(), (Shape{4, 0}));
  EXPECT_EQ(batch_norm(x, Tensor::zeros({0}), Tensor::zeros({0}), {}, {}).shape(), (Shape{4, 0}));
}

TEST(BatchNorm, FusedReluHasTheCompositionsZeros) {
  const Tensor x = cast(Tensor::from<float>({-1, 1}, {2, 1}), float16), mean = Tensor::zeros({1}),
               one = Tensor::ones({1}), tiny = Tensor::full({1}, 1e-8);
  const Tensor fused = batch_norm(x, mean, one, tiny, {}, {.activation = Activation::relu});
  const Tensor plain = relu(batch_norm(x, mean, one, tiny, {}));
  EXPECT_EQ(fused.data<Float16>()[0], plain.data<Float16>()[0]);
  EXPECT_EQ(fused.data<Float16>()[1], plain.data<Float16>()[1]);
}

}  // namespace
}  // namespace everyo
