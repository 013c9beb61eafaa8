#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"

// P11: a regression whose gradients lie below float16's range unless the loss is scaled.
namespace everyo {
namespace {

constexpr double tiny = 1e-7;  // weight of the loss

struct Data {
  Tensor features = Tensor::empty({64, 4}), targets = Tensor::empty({64, 1});
  Data() {  // as numpy.random.default_rng(0) draws: features, weights, noise
    Generator generator(0);
    for (float& x : features.data<float>()) x = static_cast<float>(generator.standard_normal());
    const Tensor weights = Tensor::empty({4, 1});
    generator.uniform(-3, 3, weights.data<float>());
    const Tensor product = matmul(features, weights);
    for (std::size_t i = 0; i < 64; ++i)
      targets.data<float>()[i] = static_cast<float>(product.data<float>()[i] + 0.05 * generator.standard_normal());
  }
};

struct Outcome {
  std::int64_t zeros = 0;  // of the first step's 193 gradient elements, unscaled
  double loss = 0;         // mean squared error at the end
};

Outcome train(bool low, bool scaled, double loss_weight) {
  const Data data;
  Sequential net(Linear(4, 32, {.seed = 0}), Tanh(), Linear(32, 1, {.seed = 1}));
  SGD optimizer(net.parameters(), {.lr = 0.05 / loss_weight});
  GradScaler scaler({.init_scale = 0x1p15, .enabled = scaled});
  const auto error = [&] {
    Tensor y;
    {
      const Autocast scope(low);
      y = net(data.features);
    }
    return mse_loss(cast(y, float32), data.targets);
  };
  Outcome outcome;
  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    scaler.backward(scale(error(), loss_weight));
    scaler.unscale(optimizer);
    if (step == 0)
      for (const Tensor& p : net.parameters())
        for (const double g : p.grad().to_vector()) outcome.zeros += g == 0;
    scaler.step(optimizer);
    scaler.update();
  }
  outcome.loss = error().item();
  return outcome;
}

// Under the dtype rule here the last bias's gradient passes through float16, too, so that all 193 are 0 without a
// scaler. The bars are those of the requirement; losses of 400 steps, in sums of 64 rounded terms, stay well within
// them.
TEST(P11, ALossThatIsNotScaledTrainsNothing) {
  const Outcome outcome = train(true, false, tiny);
  EXPECT_EQ(outcome.zeros, 193);
  EXPECT_NEAR(outcome.loss, 6.33, 0.01);
}
TEST(P11, AScaledLossTrainsAsFloat32) {
  const Outcome outcome = train(true, true, tiny);
  EXPECT_LE(outcome.zeros, 2);
  EXPECT_NEAR(outcome.loss, 0.047, 0.0006);
  const Outcome float32_run = train(false, false, 1);
  EXPECT_NEAR(float32_run.loss, 0.0474, 0.00005);
  EXPECT_EQ(float32_run.zeros, 0);
}

}  // namespace
}  // namespace everyo
