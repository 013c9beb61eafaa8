#include <gmock/gmock.h>

#include <thread>

#include "everyo/autograd.h"
#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"

namespace everyo {
namespace {

using testing::Each;

Tensor drawn(const Shape& shape, std::uint64_t seed, DType dtype = float32) {
  const Tensor t = Tensor::empty(shape);
  Generator(seed).uniform(-1, 1, t.data<float>());
  return cast(t, dtype);
}

TEST(Autocast, ChangesProductsAndNothingElse) {  // P4, the table of docs
  const Tensor x = drawn({3, 4}, 0), w = drawn({4, 4}, 1), b = drawn({4}, 2), image = drawn({1, 4, 4, 2}, 3),
               kernel = drawn({3, 3, 2, 2}, 4);
  const Autocast low(float16);
  EXPECT_EQ(matmul(x, w).dtype(), float16);
  EXPECT_EQ(linear(x, w, b).dtype(), float16);
  EXPECT_EQ(linear(x, w, b, Activation::gelu).dtype(), float16);
  EXPECT_EQ(conv2d(image, kernel, {}, {.padding = "same"}).dtype(), float16);
  EXPECT_EQ(relu(x).dtype(), float32);
  EXPECT_EQ(add(x, x).dtype(), float32);
  EXPECT_EQ(max_pool2d(image).dtype(), float32);
  const Tensor half = cast(x, float16);
  EXPECT_EQ(relu(half).dtype(), float16);
  EXPECT_EQ(add(half, x).dtype(), float32);
  EXPECT_EQ(add(half, half).dtype(), float16);
  for (const Tensor& y : {sum(half), mean(half), exp(half), log(half), softmax(half), log_softmax(half),
                          mse_loss(half, half), cross_entropy(half, Tensor::zeros({3}, int64))})
    EXPECT_EQ(y.dtype(), float32);
}

TEST(Autocast, RoundsOperandsAndTheResultOnce) {
  const Tensor x = drawn({5, 7}, 0), w = drawn({7, 3}, 1);
  Tensor low;
  {
    const Autocast scope(bfloat16);
    low = matmul(x, w);
  }
  const Tensor wide = matmul(cast(cast(x, bfloat16), float32), cast(cast(w, bfloat16), float32));
  EXPECT_EQ(low.to_vector(), cast(wide, bfloat16).to_vector());
}

TEST(Autocast, LeavesWeightsAndTheirGradientsFloat32) {  // P5
  Sequential net(Linear(8, 4), ReLU(), Linear(4, 1));
  const Tensor x = drawn({3, 8}, 0);
  x.set_requires_grad();
  std::vector<DType> between;
  Tensor loss;
  {
    const Autocast low(float16);
    const Tensor hidden = linear(x, net.parameters()[0], net.parameters()[1]);
    on_gradient(hidden, [&](std::span<const Tensor> g) { between.push_back(g[0].dtype()); });
    const Tensor y = linear(relu(hidden), net.parameters()[2], net.parameters()[3]);
    EXPECT_EQ(y.dtype(), float16);
    loss = mean(y);
  }
  loss.backward();
  EXPECT_THAT(between, Each(float16));
  ASSERT_EQ(between.size(), 1u);
  for (const Tensor& p : net.parameters()) {
    EXPECT_EQ(p.dtype(), float32);
    EXPECT_EQ(p.grad().dtype(), float32);
  }
  EXPECT_EQ(x.grad().dtype(), float32);
}

TEST(Autocast, GivesAHalfLeafAHalfGradient) {  // P6
  const Tensor w = drawn({4, 2}, 0, float16);
  w.set_requires_grad();
  Tensor loss;
  {
    const Autocast low(float16);
    loss = sum(matmul(drawn({3, 4}, 1), w));
  }
  loss.backward();
  EXPECT_EQ(w.grad().dtype(), float16);
}

TEST(Autocast, NestsAndIsOfItsThread) {  // P7
  const Tensor x = drawn({2, 2}, 0);
  const auto dtype = [&] { return matmul(x, x).dtype(); };
  EXPECT_EQ(dtype(), float32);
  {
    const Autocast outer(float16);
    {
      const Autocast island(false);
      EXPECT_EQ(dtype(), float32);
      const Autocast again(true);
      EXPECT_EQ(dtype(), float16);
    }
    try {
      const Autocast inner(bfloat16);
      EXPECT_EQ(dtype(), bfloat16);
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(dtype(), float16);
    std::thread([&] { EXPECT_EQ(dtype(), float32); }).join();
  }
  EXPECT_EQ(dtype(), float32);
  for (const DType none : {float32, int64}) EXPECT_THROW({ const Autocast low(none); }, DTypeError);
}

// A14, P8: the region holds forward, backward and the step; gradients and weights are those of a region that ends in
// time.
TEST(Autocast, A14_BackwardAndStepWithinTheRegionAreRight) {
  const auto train = [](bool inside) {
    Sequential net(Linear(4, 8, {.seed = 0}), Tanh(), Linear(8, 1, {.seed = 1}));
    Adam optimizer(net.parameters(), {.lr = 0.01});
    const Tensor x = drawn({16, 4}, 2), y = drawn({16, 1}, 3);
    for (int step = 0; step < 3; ++step) {
      const Autocast low(bfloat16);
      const Tensor loss = mse_loss(net(x), y);
      const std::optional<Autocast> outside = inside ? std::nullopt : std::optional<Autocast>(std::in_place, false);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    std::vector<double> weights;
    for (const Tensor& p : net.parameters())
      for (const double v : p.to_vector()) weights.push_back(v);
    return weights;
  };
  EXPECT_EQ(train(true), train(false));
}

// A15: float16 logits whose sum leaves float16's range.
TEST(Autocast, A15_LossesOfHalvesAreSummedInFloat32) {
  const Tensor x = Tensor::full({1, 4}, 30000, float16);
  const Autocast low(float16);
  EXPECT_EQ(sum(x).item(), 120000);
}

}  // namespace
}  // namespace everyo
