// The Trainer in float16, with its scaler, and in bfloat16.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>

#include "everyo/logging.h"
#include "everyo/random.h"
#include "train/runs.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_train::loss_of_labels;
using testing_train::small_net;
using testing_train::two_classes;
using testing_train::values_of;

// A loss that is finite while its gradient overflows float16 whatever it is scaled by, at the calls that `bad` names.
LossFunction overflowing(std::function<bool(int)> bad) {
  const auto calls = std::make_shared<int>(0);
  return [calls, bad = std::move(bad)](const Tensor& prediction, const Tensor& labels) {
    const Tensor loss = cross_entropy(prediction, labels);
    return bad((*calls)++) ? loss + sum(cast(prediction, float32)) * 1e30 : loss;
  };
}

TEST(Precision, ForwardLossAndEvaluationAreInIt) {
  for (const DType dtype : {float32, float16, bfloat16}) {
    Sequential net = small_net();
    SGD optimizer(net.parameters(), {.lr = 0.1});
    int calls = 0;
    const LossFunction loss = [&](const Tensor& prediction, const Tensor& labels) {
      ++calls;
      EXPECT_EQ(prediction.dtype(), dtype);
      EXPECT_EQ(context().autocast, dtype != float32);
      return cross_entropy(prediction, labels);
    };
    Trainer trainer(net, optimizer, loss, {.epochs = 1, .precision = dtype});
    Loader loader(two_classes(16), {.batch = 8});
    static_cast<void>(trainer.fit(loader));
    static_cast<void>(trainer.evaluate(two_classes(8)));
    EXPECT_EQ(calls, 3);
    EXPECT_FALSE(context().autocast);
    EXPECT_EQ(trainer.scaler() != nullptr, dtype == float16);
    for (const Tensor& p : net.parameters()) EXPECT_EQ(p.dtype(), float32);
  }
}

TEST(Precision, AnotherDtypeIsRefused) {
  Sequential net = small_net();
  SGD optimizer(net.parameters());
  for (const DType dtype : {float64, int64})
    EXPECT_THAT([&] { Trainer(net, optimizer, loss_of_labels(), {.precision = dtype}); },
                ThrowsMessage<ValueError>(HasSubstr("must be float32, float16 or bfloat16")));
  EXPECT_THROW(Trainer(net, optimizer, loss_of_labels(), {.precision = float16, .scaler = {.init_scale = 0}}),
               ValueError);
}

// Unscaled before it is clipped, and weighted as parts of one batch: the update is float32's, but for the rounding of
// activations and gradients to a half, of 2^-11 and 2^-8 each; a clip of scaled gradients would be off by the scale.
TEST(Precision, ClippingAndAccumulationComposeWithTheScale) {
  const auto change = [](DType dtype, std::int64_t accumulate) {
    Sequential net = small_net();
    const std::vector<double> before = values_of(net);
    SGD optimizer(net.parameters(), {.lr = 1});
    Trainer trainer(net, optimizer, loss_of_labels(),
                    {.epochs = 1, .clip_norm = 0.25, .accumulate = accumulate, .precision = dtype});
    Loader loader(two_classes(15), {.batch = 15});
    static_cast<void>(trainer.fit(loader));
    std::vector<double> by = values_of(net);
    double squares = 0;
    for (std::size_t i = 0; i < by.size(); ++i) squares += (by[i] -= before[i]) * by[i];
    EXPECT_NEAR(std::sqrt(squares), 0.25, 1e-6) << "the gradient is longer than that";
    return by;
  };
  for (const std::int64_t accumulate : {1, 4}) {
    const std::vector<double> want = change(float32, accumulate), half = change(float16, accumulate),
                              brain = change(bfloat16, accumulate);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(half[i], want[i], 0.25 * 0x1p-9) << i;
      EXPECT_NEAR(brain[i], want[i], 0.25 * 0x1p-6) << i;
    }
  }
}

// A03: a skipped step moves neither weights nor counts, and is named.
TEST(Precision, A03_ASkippedStepMovesNothing) {
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); }, LogLevel::warning);
  Sequential net = small_net();
  Adam optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(
      net, optimizer, overflowing([](int call) { return call == 1; }),
      {.epochs = 1, .schedule = step_schedule(1, 0.5), .precision = float16, .scaler = {.init_scale = 1024}});
  Loader loader(two_classes(24), {.batch = 8});
  std::vector<std::vector<double>> weights{values_of(net)};
  std::vector<double> rates;
  std::vector<LossScaling> scalings;
  const TrainResult result = trainer.fit(loader, {.progress = [&](const TrainProgress& now) {
                                           weights.push_back(values_of(net));
                                           rates.push_back(optimizer.lr());
                                           scalings.push_back(*now.scaling);
                                           return true;
                                         }});
  set_log_sink({});
  EXPECT_NE(weights[1], weights[0]);
  EXPECT_EQ(weights[2], weights[1]);
  EXPECT_NE(weights[3], weights[2]);
  EXPECT_EQ(rates, (std::vector<double>{0.05, 0.05, 0.025}));
  EXPECT_EQ(trainer.steps(), 2);
  EXPECT_EQ(optimizer.step_count(), 2);
  EXPECT_EQ(scalings[0].skipped, 0);
  EXPECT_EQ(scalings[0].overflowed, "");
  EXPECT_EQ(scalings[1].skipped, 1);
  EXPECT_EQ(scalings[1].overflowed, "0.weight");
  EXPECT_EQ(scalings[1].scale, 512);
  const LossScaling& row = result.epochs.at(0).scaling.value();
  EXPECT_EQ(row.skipped, 1);
  EXPECT_EQ(row.overflowed, "0.weight");
  EXPECT_EQ(row.scale, 512);
  EXPECT_EQ(result.epochs[0].samples, 24);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], HasSubstr("after step 1 a step is left out"));
  EXPECT_THAT(said[0], HasSubstr("scale of 1024 the gradient of '0.weight'"));
}

TEST(Precision, A02_StepsThatAllOverflowEndInTheNamedError) {
  for (const std::int64_t most_skips : {200, 0}) {
    Sequential net = small_net();
    SGD optimizer(net.parameters());
    Trainer trainer(net, optimizer, overflowing([](int) { return true; }),
                    {.epochs = 10000, .precision = float16, .scaler = {.most_skips = most_skips}});
    Loader loader(two_classes(2), {.batch = 2});  // one step an epoch
    const std::vector<double> before = values_of(net);
    double least = std::numeric_limits<double>::infinity();
    std::int64_t batches = 0;
    const FitOptions options{.progress = [&](const TrainProgress& now) {
      least = std::min(least, now.scaling->scale);
      ++batches;
      return true;
    }};
    if (most_skips == 0) {
      static_cast<void>(trainer.fit(loader, options));
      EXPECT_EQ(batches, 10000);
      EXPECT_EQ(trainer.scaler()->skipped_steps(), 10000);
    } else {
      EXPECT_THAT([&] { static_cast<void>(trainer.fit(loader, options)); },
                  ThrowsMessage<StateError>(
                      testing::AllOf(HasSubstr("200 steps in a row were left out"), HasSubstr("'0.weight'"))));
      EXPECT_EQ(batches, 199);
    }
    EXPECT_EQ(least, 1);
    EXPECT_EQ(trainer.scaler()->scale(), 1);
    EXPECT_EQ(trainer.steps(), 0);
    EXPECT_EQ(values_of(net), before);
  }
}

TEST(Precision, TheBatchAfterASkippedStepDrawsOtherMasks) {
  Sequential net{Linear(2, 64, {.seed = 1}), Dropout(0.5), Linear(64, 2, {.seed = 2})};
  SGD optimizer(net.parameters());
  std::vector<std::vector<double>> predictions;
  const LossFunction bad = overflowing([](int) { return true; });
  Trainer trainer(net, optimizer,
                  [&](const Tensor& prediction, const Tensor& labels) {
                    predictions.push_back(prediction.to_vector());
                    return bad(prediction, labels);
                  },
                  {.epochs = 3, .precision = float16});
  Loader loader(two_classes(2), {.batch = 2});
  static_cast<void>(trainer.fit(loader));
  ASSERT_EQ(predictions.size(), 3U);
  EXPECT_NE(predictions[0], predictions[1]) << "of the same rows and weights";
  EXPECT_NE(predictions[1], predictions[2]);
}

TEST(Precision, ALossThatIsNotFiniteIsNoSkip) {
  Sequential net = small_net();
  SGD optimizer(net.parameters());
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1, .precision = float16});
  ArrayDataset data = two_classes(8);
  data.features.data<float>()[3] = std::nanf("");
  Loader bad(data, {.batch = 8});
  EXPECT_THAT([&] { static_cast<void>(trainer.fit(bad)); },
              ThrowsMessage<StateError>(HasSubstr("step 1: the loss is nan; the batch itself has values")));
  data = two_classes(8);
  for (float& x : data.features.data<float>()) x *= 1e5F;  // infinite in float16
  Loader large(data, {.batch = 8});
  EXPECT_THAT([&] { static_cast<void>(trainer.fit(large)); },
              ThrowsMessage<StateError>(HasSubstr("above 65504 are infinite in float16")));
  EXPECT_EQ(trainer.scaler()->skipped_steps(), 0);
}

// What a state must hold beside float32's: a scale that falls at first and grows every third step until it overflows,
// and counts of an epoch that is cut.
struct LowRun {
  LowRun(DType dtype, const char* name, DType weights = float32)
      : net(Linear(2, 8, {.seed = 1, .dtype = weights}), BatchNorm1D(8), ReLU(), Dropout(0.3),
            Linear(8, 2, {.seed = 2, .dtype = weights})),
        optimizer(make_optimizer(name, net.parameters(), 0.03)),
        trainer(net, *optimizer, loss_of_labels(),
                {.epochs = 6,
                 .seed = 5,
                 .clip_norm = 0.5,
                 .accumulate = 3,
                 .schedule = make_schedule("cosine", {.steps = 56, .warm_up = 9}),
                 .precision = dtype,
                 .scaler = {.init_scale = 0x1p22, .growth_interval = 3}}),
        loader(two_classes(54), {.batch = 8, .shuffle = true, .seed = 3}) {}  // 7 batches an epoch
  TrainResult fit(std::int64_t batches = 1000) {
    return trainer.fit(loader, {.progress = [&](const TrainProgress&) { return --batches > 0; }});
  }
  Sequential net;
  std::unique_ptr<Optimizer> optimizer;
  Trainer trainer;
  Loader loader;
};

TEST(Precision, A13_AResumedRunHasTheBitsOfOneThatNeverStopped) {
  for (const DType dtype : {float16, bfloat16}) {
    for (const char* optimizer : {"adam", "sgd"}) {
      LowRun whole(dtype, optimizer);
      const TrainResult result = whole.fit();
      const StateTree end = whole.trainer.state(whole.loader);
      if (dtype == float16) {
        EXPECT_GT(whole.trainer.scaler()->skipped_steps(), 4);
        EXPECT_GT(whole.trainer.scaler()->applied_steps(), 20);
      }
      const std::vector<std::int64_t> order = Generator(1).permutation(41);
      for (std::size_t i = 0; i < 12; ++i) {
        LowRun first(dtype, optimizer);
        static_cast<void>(first.fit(order[i] + 1));
        const StateTree state = first.trainer.state(first.loader);
        LowRun second(dtype, optimizer);
        second.trainer.load(state, second.loader);
        EXPECT_TRUE(second.trainer.state(second.loader) == state);
        const TrainResult rest = second.fit();
        EXPECT_TRUE(second.trainer.state(second.loader) == end) << optimizer << order[i];
        const EpochMetrics& same = result.epochs[result.epochs.size() - rest.epochs.size()];
        EXPECT_EQ(rest.epochs.front().loss, same.loss) << order[i];
        ASSERT_EQ(rest.epochs.front().scaling.has_value(), dtype == float16);
        if (dtype == float16) {
          EXPECT_EQ(rest.epochs.front().scaling->skipped, same.scaling->skipped) << order[i];
          EXPECT_EQ(rest.epochs.front().scaling->overflowed, same.scaling->overflowed) << order[i];
        }
      }
    }
  }
}

// Half weights, too: their masters are in the state, and are not made again from the halves.
TEST(Precision, F10_AResumedRunOfHalfWeightsHasTheSameBits) {
  for (const DType dtype : {float16, bfloat16}) {
    for (const char* optimizer : {"adamw", "sgd"}) {
      LowRun whole(dtype, optimizer, dtype);
      static_cast<void>(whole.fit());
      const StateTree end = whole.trainer.state(whole.loader);
      EXPECT_TRUE(end.at("optimizer").at("parameters").at("0").contains("master"));
      for (const std::int64_t batches : {1, 7, 12, 30, 41}) {
        LowRun first(dtype, optimizer, dtype), second(dtype, optimizer, dtype);
        static_cast<void>(first.fit(batches));
        second.trainer.load(first.trainer.state(first.loader), second.loader);
        static_cast<void>(second.fit());
        EXPECT_TRUE(second.trainer.state(second.loader) == end) << optimizer << batches;
      }
    }
  }
}

TEST(Precision, ParametersThatAreNotTrainedDoNotKeepScaledGradients) {
  Sequential net = small_net();
  const std::vector<Tensor> all = net.parameters();
  SGD head({all[2], all[3]});
  Trainer trainer(net, head, loss_of_labels(),
                  {.epochs = 3, .precision = float16, .scaler = {.init_scale = 8, .growth_interval = 1}});
  Loader loader(two_classes(8), {.batch = 8});
  static_cast<void>(trainer.fit(loader));  // a sum over two scales would be refused
  EXPECT_EQ(trainer.scaler()->scale(), 64);
}

TEST(Precision, AStateOfAnotherIsRefused) {
  LowRun half(float16, "sgd"), brain(bfloat16, "sgd");
  static_cast<void>(half.fit(9));
  const StateTree state = half.trainer.state(half.loader), own = brain.trainer.state(brain.loader);
  EXPECT_THAT([&] { brain.trainer.load(state, brain.loader); },
              ThrowsMessage<StateError>(HasSubstr("saved in float16, and this trainer's precision is bfloat16")));
  EXPECT_TRUE(brain.trainer.state(brain.loader) == own);
  EXPECT_THROW(half.trainer.load(own, half.loader), StateError);
  StateTree damaged = state;
  damaged["scaler"]["scale"] = 0.5;
  EXPECT_THROW(half.trainer.load(damaged, half.loader), StateError);
  EXPECT_TRUE(half.trainer.state(half.loader) == state);
}

}  // namespace
}  // namespace everyo
