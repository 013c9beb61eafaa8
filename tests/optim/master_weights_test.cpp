// Half parameters: masters, what is said without them, and moments in bfloat16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "everyo/logging.h"
#include "everyo/memory.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "optim/slots.h"

namespace everyo {
namespace {

using everyo_test::slot;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A step with this gradient at each element.
void step(Optimizer& optimizer, double gradient) {
  optimizer.zero_grad();
  for (const Tensor& p : optimizer.parameters()) sum(scale(p, gradient)).backward();
  optimizer.step();
}
Tensor master_of(const Optimizer& optimizer, const char* key = "master") {
  const StateArray array = optimizer.state().at("parameters").at("0").get<StateArray>(key);
  const Tensor copy = Tensor::empty(array.spec);
  std::ranges::copy(array.bytes, copy.bytes());
  return copy;
}

// Collects what is logged while it lives.
class Log {
 public:
  Log() {
    set_log_sink([this](LogLevel, std::string_view text) { lines.emplace_back(text); }, LogLevel::warning);
  }
  ~Log() { set_log_sink({}); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  std::vector<std::string> lines;
};

// 0.9375 and the masters' last places: 100 roundings of float32 numbers below 1, and that of the half.
TEST(MasterWeights, A17_SmallUpdatesAddUp) {
  Log log;
  const Tensor w = slot({1}, bfloat16), plain = slot({1}, float32);
  SGD optimizer({w}, {.lr = 6e-4}), reference({plain}, {.lr = 6e-4});
  for (int i = 0; i < 100; ++i) {
    step(optimizer, 1);
    step(reference, 1);
  }
  EXPECT_EQ(master_of(optimizer).item(), plain.item());
  EXPECT_NEAR(plain.item(), 0.94, 100 * 0x1p-24);
  EXPECT_NEAR(w.item(), 0.94, 0x1p-9);  // half the distance of two bfloat16 below 1
  EXPECT_TRUE(log.lines.empty());
}

TEST(MasterWeights, A17_WithoutThemItIsSaidThatWeightsDoNotMove) {
  Log log;
  const Tensor w = slot({1}, bfloat16), other = slot({1}, bfloat16);
  w.body()->leaf->name = "up.weight";
  SGD optimizer({w, other}, {.lr = 6e-4, .master_weights = false});
  for (int i = 0; i < 100; ++i) step(optimizer, 1);
  EXPECT_EQ(w.item(), 1);
  ASSERT_EQ(log.lines.size(), 2U) << "once a parameter";
  EXPECT_THAT(log.lines[0], HasSubstr("'up.weight'"));
  EXPECT_THAT(log.lines[0], HasSubstr("1 of the 1 elements"));
  EXPECT_THAT(log.lines[0], HasSubstr("changes of up to 0.0006"));
  EXPECT_THAT(log.lines[0], HasSubstr("weights of up to 1 to bfloat16"));
}

TEST(MasterWeights, NothingIsSaidWhereHalvesMoveOrHaveNothingToDo) {
  Log log;
  const Tensor w = slot({1, 1, 1, 1}, float16);
  Adam optimizer({w}, {.lr = 0.1, .master_weights = false});
  for (int i = 0; i < 3; ++i) step(optimizer, 0);
  for (int i = 0; i < 3; ++i) step(optimizer, 1);
  EXPECT_LT(w.to_vector()[0], 0.9);
  EXPECT_TRUE(log.lines.empty());
}

TEST(MasterWeights, A18_WeightDecayShows) {
  for (const bool decoupled : {true, false}) {
    const Tensor w = slot({1}, bfloat16);
    std::unique_ptr<Optimizer> optimizer;
    if (decoupled)
      optimizer = std::make_unique<AdamW>(std::vector<Tensor>{w}, AdamWOptions{.lr = 1e-4, .weight_decay = 0.01});
    else
      optimizer = std::make_unique<SGD>(std::vector<Tensor>{w}, SGDOptions{.lr = 1e-4, .weight_decay = 0.01});
    step(*optimizer, 0);
    // float32's distance of numbers below 1: the step of 1e-6 is rounded to a multiple of it.
    EXPECT_NEAR(master_of(*optimizer).item(), 1 - 1e-6, 0x1p-24);
    for (int i = 1; i < 4000; ++i) step(*optimizer, 0);
    EXPECT_NEAR(master_of(*optimizer).item(), std::pow(1 - 1e-6, 4000), 4000 * 0x1p-25);
    EXPECT_EQ(w.item(), 0.99609375) << "the half below 1";
  }
}

// A run that is resumed at any step has the bits of one that was not.
template <class Make>
void check_resumed(DType dtype, DType state_dtype, const Make& make) {
  const auto train = [](Optimizer& optimizer, int from, int to) {
    for (int i = from; i < to; ++i) step(optimizer, std::cos(i));
  };
  const std::vector<double> start{1, -2, 0.5, 3, 1e-3};
  const Tensor whole = slot(start, dtype);
  const auto through = make(whole, state_dtype);
  train(*through, 0, 12);
  for (const int stop : {0, 1, 5, 11}) {
    const Tensor first = slot(start, dtype);
    const auto before = make(first, state_dtype);
    train(*before, 0, stop);
    const StateTree state = before->state();
    const Tensor second = first.copy();
    second.set_requires_grad();
    const auto after = make(second, state_dtype);
    after->load(state);
    EXPECT_TRUE(after->state() == state);
    train(*after, stop, 12);
    EXPECT_TRUE(after->state() == through->state()) << stop;
    EXPECT_EQ(second.to_vector(), whole.to_vector()) << stop;
  }
}
const auto make_adam = [](const Tensor& p, DType state) {
  return std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions{.lr = 1e-3, .beta2 = 0.99, .state_dtype = state});
};
const auto make_sgd = [](const Tensor& p, DType state) {
  return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 1e-3, .momentum = 0.9, .state_dtype = state});
};

TEST(MasterWeights, F10_AreSavedAndGoOnWithTheSameBits) {
  for (const DType dtype : {float16, bfloat16}) {
    for (const DType state : {float32, bfloat16, float64}) {
      check_resumed(dtype, state, make_adam);
      check_resumed(dtype, state, make_sgd);
    }
  }
}

TEST(MasterWeights, F10_AreNotMadeAgainFromHalves) {
  const Tensor w = slot({1}, bfloat16);
  SGD with({w}, {.lr = 6e-4}), without({w}, {.lr = 6e-4, .master_weights = false});
  step(with, 1);
  step(without, 1);
  const StateTree masters = with.state(), none = without.state();
  EXPECT_THAT([&] { with.load(none); },
              ThrowsMessage<StateError>(HasSubstr("no master weights for parameter 0 '', which is bfloat16")));
  EXPECT_TRUE(with.state() == masters);
  EXPECT_THAT([&] { without.load(masters); }, ThrowsMessage<StateError>(HasSubstr("set master_weights")));
  const Tensor plain = slot({1}, float32);
  SGD wide({plain}, {.lr = 6e-4});
  EXPECT_THAT([&] { wide.load(masters); }, ThrowsMessage<StateError>(HasSubstr("which is float32 here")));
  StateTree half = masters;
  const std::vector<double> one{1};
  half["parameters"]["0"]["master"] = StateArray::copy_of({float64, {1}}, std::as_bytes(std::span(one)));
  EXPECT_THAT([&] { with.load(half); }, ThrowsMessage<StateError>(HasSubstr("it is float32")));
}

TEST(MasterWeights, F11_MomentsKeepTheirType) {
  check_resumed(float32, bfloat16, make_adam);
  check_resumed(float32, bfloat16, make_sgd);
  const Tensor w = slot({1, 2}, float32);
  Adam saved({w}, {.beta2 = 0.99, .state_dtype = bfloat16});
  step(saved, 1);
  EXPECT_EQ(master_of(saved, "mean").dtype(), bfloat16);
  Adam loaded({w}, {.state_dtype = float32});
  loaded.load(saved.state());
  step(loaded, 1);
  EXPECT_EQ(master_of(loaded, "mean").dtype(), bfloat16);
  EXPECT_EQ(master_of(loaded, "square").dtype(), bfloat16);
  EXPECT_FALSE(loaded.state().at("parameters").at("0").contains("master"));
  EXPECT_THROW(Adam({w}, {.state_dtype = float16}), ValueError);
}

TEST(MasterWeights, F11_MomentsThatWouldNotFallAreNamed) {
  Log log;
  const Tensor w = slot({1}, float32);
  const Adam fine({w}, {.beta2 = 0.99, .state_dtype = bfloat16});
  EXPECT_TRUE(log.lines.empty());
  const Adam stays({w}, {.state_dtype = bfloat16});
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_THAT(log.lines[0], HasSubstr("beta2 is 0.999"));
}

TEST(MasterWeights, FollowWhatSomeoneElseSets) {
  const Tensor w = slot({1, 1}, bfloat16);
  SGD optimizer({w}, {.lr = 6e-4});
  for (int i = 0; i < 2; ++i) step(optimizer, 1);
  const std::vector<double> before = master_of(optimizer).to_vector();
  w.assign(Tensor::from<float>({1, 5}, {2}));  // 1 is what the first already is, rounded
  step(optimizer, 1);
  const std::vector<double> after = master_of(optimizer).to_vector();
  EXPECT_NEAR(after[0], before[0] - 6e-4, 0x1p-23);
  EXPECT_NEAR(after[1], 5 - 6e-4, 0x1p-22);
  EXPECT_EQ(w.to_vector()[1], 5);
}

TEST(MasterWeights, CountAsOptimizerState) {
  const Tensor w = slot(std::vector<double>(1024, 1), float16);
  SGD optimizer({w});
  const auto before = memory::report()[MemoryCategory::optimizer_state].now;
  step(optimizer, 1);
  EXPECT_EQ(memory::report()[MemoryCategory::optimizer_state].now - before, 4096);
}

}  // namespace
}  // namespace everyo
