#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <thread>

#include "everyo/autograd.h"
#include "everyo/logging.h"
#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"

// Where autocast and the scaler meet other modes, views, threads and errors.
namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor drawn(const Shape& shape, std::uint64_t seed) {
  const Tensor t = Tensor::empty(shape);
  Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}
Tensor slot(double value = 1, DType dtype = float32) { return Tensor::full({1}, value, dtype).set_requires_grad(); }

TEST(AutocastCorner, TakesIntegersBesideAFloat) {  // as promotion does without it
  const Tensor counts = Tensor::ones({2, 4}, int64), w = drawn({4, 3}, 0), pixels = Tensor::ones({1, 4, 4, 1}, uint8),
               kernel = drawn({2, 2, 1, 2}, 1);
  EXPECT_EQ(matmul(counts, w).dtype(), float32);
  const Autocast low(bfloat16);
  for (const Tensor& y :
       {matmul(counts, w), matmul(w, Tensor::ones({3, 2}, boolean)), linear(counts, w), conv2d(pixels, kernel)})
    EXPECT_EQ(y.dtype(), bfloat16);
  EXPECT_EQ(matmul(counts, w).to_vector(), matmul(Tensor::ones({2, 4}), w).to_vector());
  EXPECT_THROW(matmul(counts, Tensor::ones({4, 2}, int64)), DTypeError);
}

TEST(AutocastCorner, AProductOfNoRowsGivesAGradientOfZeros) {
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor w = drawn({3, 2}, 0);
    w.set_requires_grad();
    Tensor total;
    {
      const Autocast low(dtype);
      total = sum(matmul(Tensor::zeros({0, 3}), w));
    }
    total.backward();
    EXPECT_EQ(w.grad().to_vector(), std::vector<double>(6, 0.0));
  }
}

TEST(AutocastCorner, AGraphIsAsItWasRecorded) {  // whatever the mode is during backward
  const Tensor w = drawn({4, 3}, 0), x = drawn({2, 4}, 1);
  w.set_requires_grad();
  const auto gradient = [&](auto&& backward_of) {
    w.zero_grad();
    Tensor loss;
    {
      const Autocast low(float16);
      loss = mean(matmul(x, w));
    }
    backward_of(loss);
    return w.grad().to_vector();
  };
  const std::vector<double> outside = gradient([](const Tensor& loss) { loss.backward(); });
  EXPECT_EQ(gradient([](const Tensor& loss) {
              const Autocast other(bfloat16);
              loss.backward();
            }),
            outside);
  EXPECT_EQ(gradient([](const Tensor& loss) { std::thread([&] { loss.backward(); }).join(); }), outside);
  EXPECT_EQ(gradient([](const Tensor& loss) {
              const Autocast off(false);
              loss.backward({.retain_graph = true});
            }),
            outside);
}

TEST(AutocastCorner, AHookOfBackwardRunsOutsideIt) {
  const Tensor w = slot();
  DType inside{};
  Tensor y;
  const Autocast low(float16);
  y = scale(w, 2);
  on_gradient(y, [&](std::span<const Tensor>) { inside = matmul(Tensor::ones({1, 1}), Tensor::ones({1, 1})).dtype(); });
  sum(y).backward();
  EXPECT_EQ(inside, float32);
  EXPECT_EQ(matmul(Tensor::ones({1, 1}), Tensor::ones({1, 1})).dtype(), float16);
}

TEST(AutocastCorner, WarnsOncePerThreadOfABackwardInside) {  // P8
  std::vector<std::string> messages;
  set_log_sink([&](LogLevel, std::string_view text) { messages.emplace_back(text); });
  std::thread([] {
    const Autocast low(float16);
    for (int i = 0; i < 3; ++i) sum(slot()).backward();
  }).join();
  set_log_sink({});
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("within autocast"));
}

TEST(AutocastCorner, AForwardWithoutGradientsLeavesTheNextOneItsGraph) {  // both use one cast of the weight
  Linear layer(4, 3, {.seed = 0});
  const Tensor x = drawn({2, 4}, 1), weight = layer.parameters()[0];
  const Autocast low(bfloat16);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(layer(x).requires_grad());
  }
  Tensor loss = mean(layer(x));
  {
    const Autocast off(false);
    loss.backward();
  }
  EXPECT_TRUE(weight.grad().defined());
  weight.set_requires_grad(false);
  EXPECT_TRUE(layer(x).requires_grad());  // the bias wants one
  weight.set_requires_grad(true);
  loss = mean(layer(x));
  weight.zero_grad();
  {
    const Autocast off(false);
    loss.backward();
  }
  EXPECT_TRUE(weight.grad().defined());
}

TEST(AutocastCorner, AViewOfAParameterFollowsItsWrites) {
  Linear layer(4, 4, {.seed = 0});
  const Tensor x = drawn({2, 4}, 1), weight = layer.parameters()[0];
  const Autocast low(bfloat16);
  const Tensor view = reshape(weight, {4, 4});
  EXPECT_EQ(matmul(x, view).to_vector(), matmul(x, weight).to_vector());
  for (float& v : view.detach().write<float>()) v = 0;
  EXPECT_THAT(matmul(x, view).to_vector(), testing::Each(0));
  EXPECT_THAT(matmul(x, weight).to_vector(), testing::Each(0));
}

TEST(AutocastCorner, ACopyIsCastForItself) {
  Linear layer(4, 4, {.seed = 0});
  const Tensor x = drawn({2, 4}, 1);
  const Autocast low(bfloat16);
  const std::vector<double> before = layer(x).to_vector();
  Linear copy = layer.clone();
  copy.parameters()[0].assign(Tensor::zeros({4, 4}));
  EXPECT_EQ(layer(x).to_vector(), before);
  EXPECT_THAT(copy(x).to_vector(), testing::Each(0));
  Linear moved = std::move(layer);
  EXPECT_EQ(moved(x).to_vector(), before);
}

TEST(AutocastCorner, UsesOfAWeightAreSummedInFloat32) {  // 2049 is no half
  const Tensor w = Tensor::ones({1, 1}).set_requires_grad();
  Tensor loss;
  {
    const Autocast low(float16);
    loss = sum(matmul(Tensor::full({1, 1}, 2048), w)) + sum(matmul(Tensor::ones({1, 1}), w));
  }
  loss.backward();
  EXPECT_EQ(w.grad().item(), 2049);
}

TEST(AutocastCorner, WhatIsSavedInHalvesCanBePacked) {
  struct ToDouble final : SavedValueHooks {  // and back
    int packed = 0;
    std::shared_ptr<void> pack(const Tensor& value) override {
      ++packed;
      EXPECT_EQ(value.dtype(), bfloat16);
      return std::make_shared<Tensor>(cast(value, float64));
    }
    Tensor unpack(const std::shared_ptr<void>& data) override {
      return cast(*static_cast<const Tensor*>(data.get()), bfloat16);
    }
  } hooks;
  Linear layer(4, 3, {.seed = 0});
  const auto gradients = [&](SavedValueHooks* saved) {
    const Tensor x = drawn({2, 4}, 1).set_requires_grad();
    Tensor y;
    {
      const Scoped<&Context::saved> scope(saved);
      const Autocast low(bfloat16);
      y = layer(scale(x, 2));  // of a leaf the cast would be made again
    }
    const Tensor seed = Tensor::ones({2, 3}, bfloat16);
    y.backward({.seed = &seed});
    return x.grad().to_vector();
  };
  EXPECT_EQ(gradients(&hooks), gradients(nullptr));
  EXPECT_GT(hooks.packed, 0);
}

TEST(AutocastCorner, AWorkingThreadTakesTheModeAlong) {
  const Autocast low(bfloat16);
  DType inside{};
  std::thread([&, snapshot = context()] {
    const ContextScope in(snapshot);
    inside = matmul(Tensor::ones({1, 1}), Tensor::ones({1, 1})).dtype();
  }).join();
  EXPECT_EQ(inside, bfloat16);
}

TEST(GradScalerCorner, RefusesALossThatIsScaled) {
  const Tensor w = slot();
  const GradScaler scaler({.init_scale = 4});
  const Tensor scaled = scaler.scale(sum(w));
  try {
    scaler.backward(scaled);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("scaled already"));
  }
  scaled.backward();
  EXPECT_EQ(w.grad().to_vector(), std::vector<double>{4});
}

TEST(GradScalerCorner, TakesASumOfScaledLossesAndAPartOfOne) {
  const Tensor w = slot();
  const SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  GradScaler scaler({.init_scale = 4});
  (scaler.scale(sum(w)) + scaler.scale(sum(w)) * 0.5).backward();
  EXPECT_TRUE(scaler.unscale(optimizer));
  EXPECT_EQ(w.grad().to_vector(), std::vector<double>{1.5});
}

TEST(GradScalerCorner, DividesByTheScaleOfTheBackward) {  // not by what the scale has become since
  const Tensor w = slot();
  const SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  GradScaler scaler({.init_scale = 4});
  const Tensor loss = scaler.scale(sum(w));
  scaler.update(16);
  loss.backward();
  EXPECT_TRUE(scaler.unscale(optimizer));
  EXPECT_EQ(w.grad().to_vector(), std::vector<double>{1});
}

TEST(GradScalerCorner, ABackwardThatThrowsScalesNoOther) {
  const Tensor w = slot(), other = slot();
  const GradScaler scaler({.init_scale = 4});
  const Tensor y = sum(w);
  on_gradient(y, [](std::span<const Tensor>) { throw 1; });
  EXPECT_THROW(scaler.backward(y), int);
  sum(other).backward();
  const SGD optimizer(std::vector<Tensor>{other}, {.lr = 1});
  EXPECT_EQ(clip_grad_norm(optimizer.parameters(), 10), 1);  // refuses what is scaled
}

TEST(GradScalerCorner, ABackwardOfALeafItselfIsScaledByNoEarlierOne) {
  const Tensor w = slot(), leaf = slot();
  GradScaler({.init_scale = 4}).backward(sum(w));
  leaf.backward();
  EXPECT_EQ(clip_grad_norm(std::vector{leaf}, 10), 1);  // refuses what is scaled
}

TEST(GradScalerCorner, ScalesAHalfLossInFloat32) {  // 65536 is beyond float16
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor scaled = GradScaler().scale(sum(slot(1, dtype)));
    EXPECT_EQ(scaled.dtype(), float32);
    EXPECT_EQ(scaled.item(), 65536);
  }
}

// One weight w in two places: w w x, whose gradient by w is 2 w x. It is kept by place until it is asked for.
struct Twice : Module<Twice> {
  Twice() {
    first.weight.tensor().assign(Tensor::ones({1, 1}));
    second.weight = first.weight.tie();
  }
  void visit(Visitor& v) { v("first", first)("second", second); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return second(first(x)); }
  Linear first{1, 1, {.bias = false}}, second{1, 1, {.bias = false}};
};

TEST(GradScalerCorner, ABackwardAddsToWhatWasDoneToATiedGradient) {
  Twice net;
  const SGD optimizer(net.parameters(), {.lr = 1});
  const Tensor x = Tensor::ones({1, 1}), weight = optimizer.parameters()[0];
  GradScaler scaler({.init_scale = 4});
  scaler.backward(sum(net(x)));
  EXPECT_EQ(weight.grad().item(), 8);
  scaler.unscale(optimizer);
  sum(net(x)).backward();
  EXPECT_EQ(weight.grad().item(), 2 + 2);
  clip_grad_norm(optimizer.parameters(), 1);
  sum(net(x)).backward();
  EXPECT_EQ(weight.grad().item(), 1 + 2);
  clip_grad_value(optimizer.parameters(), 1.5);
  sum(net(x)).backward();
  EXPECT_EQ(weight.grad().item(), 1.5 + 2);
}

TEST(GradScalerCorner, AStepThatThrewCountsAsNone) {
  struct Broken final : Agreement {
    void max(std::span<double>) override { throw StateError("the network is down"); }
    void sum(std::span<double>) override {}
  } broken;
  const Tensor w = slot();
  SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  GradScaler scaler({.init_scale = 4, .growth_interval = 1, .ranks = &broken});
  scaler.backward(sum(w));
  EXPECT_THROW(scaler.step(optimizer), StateError);
  scaler.update();
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_EQ(scaler.applied_steps(), 0);
}

TEST(GradScalerCorner, AStepThatTheOptimizerRefusesMayBeMadeAgain) {
  Linear layer(1, 1, {.seed = 0, .bias = false});
  const Tensor weight = layer.parameters()[0];
  weight.assign(Tensor::ones({1, 1}));
  SGD optimizer(layer.parameters(), {.lr = 1});
  GradScaler scaler({.init_scale = 4});
  scaler.backward(sum(scale(weight, 0.5)));
  const Ref<Storage> values = weight.body()->storage;
  release_storage(weight);
  EXPECT_THROW(scaler.step(optimizer), StateError);
  EXPECT_EQ(scaler.applied_steps(), 0);
  restore_storage(weight, values);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.applied_steps(), 1);
  EXPECT_EQ(weight.item(), 0.5);
}

TEST(GradScalerCorner, AHalfParameterOverflowsInItsOwnDtype) {
  const Tensor w = slot(1, float16);
  SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 65536});
  scaler.backward(sum(w));  // 65536 is beyond float16
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  optimizer.zero_grad();
  scaler.backward(sum(w));
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_EQ(w.to_vector(), std::vector<double>{0.5});
}

TEST(GradScalerCorner, GradientsOfEachThreadHaveTheirScale) {
  const GradScaler scaler({.init_scale = 4});
  std::array<double, 2> got{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      const Tensor w = slot();
      for (int repeat = 0; repeat < 50; ++repeat) {
        w.zero_grad();
        if (i == 0)
          scaler.backward(sum(w));
        else
          sum(w).backward();
      }
      got[i] = w.grad().item();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(got, ElementsAre(4, 1));
}

}  // namespace
}  // namespace everyo
