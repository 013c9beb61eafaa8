#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"

namespace everyo {
namespace {

using testing::HasSubstr;
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Error, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// One weight w, and a loss whose gradient is the factor given.
class Line {
 public:
  Tensor w = slot();
  SGD optimizer{std::vector<Tensor>{w}, {.lr = 0.5}};
  [[nodiscard]] Tensor loss(double slope) const { return sum(scale(w, slope)); }

 private:
  static Tensor slot() {
    const Tensor ones = Tensor::ones({2});
    ones.set_requires_grad();
    return ones;
  }
};

TEST(GradScaler, GivesTheStepOfFloat32) {  // P9, P10, P14
  const auto train = [](bool scaled) {
    Sequential net(Linear(4, 8, {.seed = 0}), Tanh(), Linear(8, 1, {.seed = 1}));
    SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    GradScaler scaler({.growth_interval = 2, .enabled = scaled});
    const Tensor x = Tensor::empty({16, 4}), y = Tensor::empty({16, 1});
    Generator(2).uniform(-1, 1, x.data<float>());
    Generator(3).uniform(-1, 1, y.data<float>());
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      scaler.backward(mse_loss(net(x), y));
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    }
    EXPECT_EQ(scaler.scale(), scaled ? 65536 * 4 : 1);
    std::vector<double> weights;
    for (const Tensor& p : net.parameters())
      for (const double v : p.to_vector()) weights.push_back(v);
    return weights;
  };
  EXPECT_EQ(train(true), train(false));  // a power of two loses no bit
}

TEST(GradScaler, LeavesOutAStepThatOverflows) {
  Line line;
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  scaler.backward(line.loss(infinity));
  EXPECT_FALSE(scaler.step(line.optimizer));
  scaler.update();
  EXPECT_EQ(line.w.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_EQ(scaler.skipped_steps(), 1);
  EXPECT_EQ(scaler.skips_in_a_row(), 1);
  for (int step = 0; step < 2; ++step) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(1));
    EXPECT_TRUE(scaler.step(line.optimizer));
    scaler.update();
  }
  EXPECT_EQ(line.w.to_vector(), (std::vector<double>{0, 0}));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(scaler.applied_steps(), 2);
  EXPECT_EQ(scaler.skips_in_a_row(), 0);
}

TEST(GradScaler, OfDisabledKindDoesNothing) {
  Line line;
  GradScaler scaler({.enabled = false});
  const Tensor loss = line.loss(2);
  EXPECT_EQ(scaler.scale(loss).body(), loss.body());
  scaler.backward(loss);
  EXPECT_TRUE(scaler.unscale(line.optimizer));
  EXPECT_TRUE(scaler.step(line.optimizer));
  scaler.update();
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(line.w.to_vector(), (std::vector<double>{0, 0}));
}

TEST(GradScaler, AccumulatesMicroBatchesOfOneScale) {
  Line line;
  GradScaler scaler({.init_scale = 4});
  scaler.backward(line.loss(1));
  scaler.backward(line.loss(0.5));
  EXPECT_TRUE(scaler.unscale(line.optimizer));
  EXPECT_EQ(line.w.grad().to_vector(), (std::vector<double>{1.5, 1.5}));
  const std::string message = message_of<StateError>([&] { scaler.backward(line.loss(1)); });
  EXPECT_THAT(message, HasSubstr("multiplied by 1, what comes now by 4"));
  EXPECT_EQ(line.w.grad().to_vector(), (std::vector<double>{1.5, 1.5}));
  line.optimizer.zero_grad();
  scaler.backward(line.loss(1));
  EXPECT_THAT(message_of<StateError>([&] { line.loss(1).backward(); }),
              HasSubstr("multiplied by 4, what comes now by 1"));
}

TEST(GradScaler, SaysWhatIsOutOfTurn) {
  Line line;
  GradScaler scaler;
  scaler.backward(line.loss(1));
  EXPECT_THAT(message_of<StateError>([&] { line.optimizer.step(); }), HasSubstr("unscale it"));
  scaler.unscale(line.optimizer);
  EXPECT_THAT(message_of<StateError>([&] { scaler.unscale(line.optimizer); }), HasSubstr("update()"));
  scaler.step(line.optimizer);
  EXPECT_THAT(message_of<StateError>([&] { scaler.step(line.optimizer); }), HasSubstr("update()"));
  EXPECT_THAT(message_of<StateError>([&] { scaler.unscale(line.optimizer); }), HasSubstr("update()"));
  scaler.update();
  line.optimizer.zero_grad();
  scaler.backward(line.loss(1));
  EXPECT_TRUE(scaler.step(line.optimizer));
}

TEST(GradScaler, RefusesOptionsAndStatesOutOfRange) {
  EXPECT_THROW(GradScaler({.init_scale = 0.5}), ValueError);
  EXPECT_THROW(GradScaler({.init_scale = infinity}), ValueError);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), ValueError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), ValueError);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), ValueError);
  EXPECT_THROW(GradScaler({.most_skips = -1}), ValueError);
  GradScaler scaler;
  EXPECT_THROW(scaler.update(0.25), ValueError);
  StateTree state = scaler.state();
  state["scale"] = 0.0;
  EXPECT_THROW(scaler.load(state), StateError);
  EXPECT_THROW(scaler.load({}), StateError);
  for (const char* count : {"good_steps", "applied_steps", "skipped_steps", "skips_in_a_row"})
    for (const std::int64_t wrong : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
      StateTree counts = GradScaler().state();
      counts[count] = wrong;
      EXPECT_THAT(message_of<StateError>([&] { scaler.load(counts); }), HasSubstr(count));
    }
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(GradScaler, GrowsAfterCleanStepsInARow) {  // not in all
  Line line;
  GradScaler scaler({.init_scale = 4, .growth_interval = 2});
  std::vector<double> scales;
  for (const double slope : {1.0, infinity, 1.0, infinity, 1.0, 1.0}) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(slope));
    scaler.step(line.optimizer);
    scaler.update();
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 2, 2, 1, 1, 2}));
}

TEST(GradScaler, NeverGrowsOutOfFloat32) {
  Line line;
  GradScaler scaler({.init_scale = 0x1p125, .growth_interval = 1});
  for (int step = 0; step < 3; ++step) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(0));
    EXPECT_TRUE(scaler.step(line.optimizer));
    scaler.update();
  }
  EXPECT_EQ(scaler.scale(), 0x1p126);
}

TEST(GradScaler, UnscalesATiedWeightOnce) {
  Line line;
  GradScaler scaler({.init_scale = 16});
  const Tensor& w = line.w;
  scaler.backward(sum(multiply(w, w)));  // 2 w
  EXPECT_TRUE(scaler.unscale(line.optimizer));
  EXPECT_EQ(w.grad().to_vector(), (std::vector<double>{2, 2}));
}

// A01: a weight whose gradient is always infinite, for 170 steps.
TEST(GradScaler, A01_TheScaleStopsAtOne) {
  Line line;
  GradScaler scaler({.most_skips = 0});
  for (int step = 0; step < 170; ++step) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(infinity));
    EXPECT_FALSE(scaler.step(line.optimizer));
    scaler.update();
    EXPECT_GE(scaler.scale(), 1);
  }
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(line.w.to_vector(), (std::vector<double>{1, 1}));
}

// A02: after as many skips in a row as were allowed, the error has the parameter's name.
TEST(GradScaler, A02_SkipsWithoutEndNameTheParameter) {
  Sequential net(Linear(2, 2), Linear(2, 1));
  SGD optimizer(net.parameters(), {.lr = 0.1});
  GradScaler scaler({.most_skips = 3});
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.backward(sum(scale(net.parameters()[2], std::nan(""))));
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
  };
  step();
  step();
  EXPECT_EQ(scaler.overflowed(), "1.weight");
  const std::string message = message_of<StateError>(step);
  EXPECT_THAT(message, HasSubstr("3 steps in a row"));
  EXPECT_THAT(message, HasSubstr("'1.weight'"));
  EXPECT_THAT(message, HasSubstr("step 3"));
}

TEST(GradScaler, A02_TenThousandStepsEndInTheNamedError) {
  Line line;
  GradScaler scaler;
  int steps = 0;
  const std::string message = message_of<StateError>([&] {
    for (; steps < 10000; ++steps) {
      line.optimizer.zero_grad();
      scaler.backward(line.loss(infinity));
      scaler.step(line.optimizer);
      scaler.update();
      ASSERT_GE(scaler.scale(), 1);
    }
  });
  EXPECT_EQ(steps, 199);
  EXPECT_THAT(message, HasSubstr("is not finite"));
}

// A03: step says that it was left out, and counts nothing.
TEST(GradScaler, A03_ASkippedStepCountsNowhere) {
  Line line;
  Adam optimizer(std::vector<Tensor>{line.w}, {.lr = 0.5});
  GradScaler scaler;
  scaler.backward(line.loss(infinity));
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(optimizer.step_count(), 0);
  EXPECT_EQ(scaler.applied_steps(), 0);
}

// A04: clipping scaled gradients is refused; after unscale the update is float32's.
TEST(GradScaler, A04_ClippingComesAfterUnscale) {
  const auto update = [](bool scaled) {
    Line line;
    GradScaler scaler({.enabled = scaled});
    scaler.backward(line.loss(3));
    if (scaled) {
      EXPECT_THAT(message_of<StateError>([&] { clip_grad_norm(line.optimizer.parameters(), 1); }),
                  HasSubstr("unscale it before clipping"));
    }
    scaler.unscale(line.optimizer);
    EXPECT_NEAR(clip_grad_norm(line.optimizer.parameters(), 1), 3 * std::sqrt(2), 1e-12);
    EXPECT_TRUE(scaler.step(line.optimizer));
    return line.w.to_vector();
  };
  EXPECT_EQ(update(true), update(false));
}

// A07: one of two optimizers got no gradient.
TEST(GradScaler, A07_AnOptimizerWithoutGradientsStepsAsANoOp) {
  Line used, unused;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  scaler.backward(used.loss(1));
  EXPECT_TRUE(scaler.step(used.optimizer));
  EXPECT_TRUE(scaler.step(unused.optimizer));
  scaler.update();
  EXPECT_EQ(used.w.to_vector(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(unused.w.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(GradScaler, A07_OneOverflowLowersTheScaleOfAllAndStopsItsOwnStepOnly) {
  Line fine, bad;
  GradScaler scaler({.init_scale = 4});
  scaler.backward(fine.loss(1));
  scaler.backward(bad.loss(infinity));
  EXPECT_TRUE(scaler.step(fine.optimizer));
  EXPECT_FALSE(scaler.step(bad.optimizer));
  scaler.update();
  EXPECT_EQ(scaler.scale(), 2);
}

// A08: unscaled, not stepped, and the next iteration begins without update().
TEST(GradScaler, A08_ANewIterationUnscalesAgain) {
  Line line;
  GradScaler scaler({.init_scale = 4});
  scaler.backward(line.loss(1));
  EXPECT_TRUE(scaler.unscale(line.optimizer));
  line.optimizer.zero_grad();
  scaler.backward(line.loss(3));
  EXPECT_TRUE(scaler.unscale(line.optimizer));
  EXPECT_EQ(line.w.grad().to_vector(), (std::vector<double>{3, 3}));
  EXPECT_TRUE(scaler.step(line.optimizer));
}

// A13: scale and counts are part of the state.
TEST(GradScaler, A13_AResumedScalerGoesOnAsOneThatNeverStopped) {
  const auto run = [](int stop) {
    Line line;
    auto scaler = std::make_unique<GradScaler>(GradScalerOptions{.init_scale = 64, .growth_interval = 3});
    std::vector<double> scales;
    for (int step = 0; step < 12; ++step) {
      if (step == stop) {
        const StateTree state = scaler->state();
        scaler = std::make_unique<GradScaler>(GradScalerOptions{.init_scale = 1, .growth_interval = 3});
        scaler->load(state);
        EXPECT_EQ(scaler->state(), state);
      }
      line.optimizer.zero_grad();
      scaler->backward(line.loss(step == 4 || step == 5 ? infinity : 0.125));
      scaler->step(line.optimizer);
      scaler->update();
      scales.push_back(scaler->scale());
    }
    scales.push_back(static_cast<double>(scaler->skipped_steps()));
    scales.push_back(static_cast<double>(scaler->applied_steps()));
    return scales;
  };
  const std::vector<double> whole = run(-1);
  for (int stop = 0; stop < 12; ++stop) EXPECT_EQ(run(stop), whole) << stop;
}

// Another rank's overflow stops this one's step.
TEST(GradScaler, AgreesWithItsRanks) {
  struct Others final : Agreement {
    bool overflowed = false;
    void max(std::span<double> values) override {
      if (overflowed) values[0] = 1;
    }
    void sum(std::span<double>) override {}
  } others;
  Line line;
  GradScaler scaler({.init_scale = 4, .most_skips = 1, .ranks = &others});
  scaler.backward(line.loss(1));
  EXPECT_TRUE(scaler.step(line.optimizer));
  scaler.update();
  others.overflowed = true;
  line.optimizer.zero_grad();
  scaler.backward(line.loss(1));
  EXPECT_FALSE(scaler.step(line.optimizer));
  EXPECT_THAT(message_of<StateError>([&] { scaler.update(); }), HasSubstr("(on another rank)"));
}

}  // namespace
}  // namespace everyo
