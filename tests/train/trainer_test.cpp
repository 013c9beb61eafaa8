#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "everyo/context.h"
#include "everyo/events.h"
#include "everyo/memory.h"
#include "everyo/ops.h"
#include "everyo/train.h"
#include "train/runs.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_train::loss_of_labels;
using testing_train::small_net;
using testing_train::two_classes;
using testing_train::values_of;

TEST(Trainer, LearnsAndReportsEachEpoch) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 5});
  Loader loader(two_classes(50), {.batch = 8, .shuffle = true});
  std::vector<std::int64_t> ended;
  const TrainResult result =
      trainer.fit(loader, {.epoch_end = [&](const EpochMetrics& row) { ended.push_back(row.epoch); }});
  EXPECT_THAT(ended, ElementsAre(1, 2, 3, 4, 5));
  ASSERT_EQ(result.epochs.size(), 5u);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(trainer.steps(), 5 * 7);
  EXPECT_EQ(loader.epoch(), 5);
  for (const EpochMetrics& row : result.epochs) {
    EXPECT_EQ(row.samples, 50);
    EXPECT_EQ(row.learning_rate, 0.1);
    EXPECT_GT(row.samples_per_second, 0);
  }
  EXPECT_LT(result.epochs[4].loss, result.epochs[0].loss);
  EXPECT_EQ(trainer.evaluate(loader.dataset()).accuracy, 1);
}

TEST(Trainer, LossAndAccuracyAreWeightedBySamples) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const Trainer trainer(net, optimizer, loss_of_labels());
  const ArrayDataset data = two_classes(10);
  const Evaluation whole = trainer.evaluate(data, 10), uneven = trainer.evaluate(data, 7);
  EXPECT_EQ(uneven.samples, 10);
  EXPECT_NEAR(uneven.loss, whole.loss, 1e-6);  // float32 means of 7 and of 3 rows
  EXPECT_EQ(uneven.accuracy, whole.accuracy);
  const Evaluation first = trainer.evaluate(ArrayDataset(data.rows(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6})));
  const Evaluation rest = trainer.evaluate(ArrayDataset(data.rows(std::vector<std::int64_t>{7, 8, 9})));
  EXPECT_NEAR(uneven.loss, (7 * first.loss + 3 * rest.loss) / 10, 1e-6);
  EXPECT_GT(std::abs((first.loss + rest.loss) / 2 - whole.loss), 1e-4) << "a mean of means would not be told apart";
}

TEST(Trainer, ProgressIsCalledEachStepAndCanStop) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 3});
  Loader loader(two_classes(20), {.batch = 8});
  std::vector<std::int64_t> steps;
  const auto fifth_stops = [&](const TrainProgress& p) {
    EXPECT_EQ(p.steps, 3);
    EXPECT_EQ(p.epochs, 3);
    EXPECT_GE(p.seconds_left, 0);
    steps.push_back(10 * p.epoch + p.step);
    return steps.size() < 5;
  };
  const TrainResult result = trainer.fit(loader, {.progress = fifth_stops});
  EXPECT_THAT(steps, ElementsAre(11, 12, 13, 21, 22));
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.epochs.size(), 1u);
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(loader.position(), 16);
}

TEST(Trainer, AStoppedRunGoesOnWithTheSameBits) {
  const ArrayDataset data = two_classes(20);
  const auto trained = [&](bool stopped) {
    Sequential net = small_net();
    SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 3});
    Loader loader(data, {.batch = 8, .shuffle = true, .seed = 4});
    int calls = 0;
    if (stopped) trainer.fit(loader, {.progress = [&](const TrainProgress&) { return ++calls < 4; }});
    trainer.fit(loader);
    return values_of(net);
  };
  EXPECT_EQ(trained(true), trained(false));
}

/// The message of a run that must stop for its loss.
std::string message_of(Sequential& net, const ArrayDataset& data, const LossFunction& loss, double lr = 0.1) {
  SGD optimizer(net.parameters(), {.lr = lr});
  Trainer trainer(net, optimizer, loss, {.epochs = 2});
  Loader loader(data, {.batch = 4});
  try {
    trainer.fit(loader);
  } catch (const StateError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trainer, ALossThatIsNotFiniteNamesStepAndCause) {
  const float inf = std::numeric_limits<float>::infinity();
  const ArrayDataset data = two_classes(8);
  {
    Sequential net = small_net();
    net.parameters()[2].write<float>()[3] = inf;
    EXPECT_THAT(message_of(net, data, loss_of_labels()),
                testing::AllOf(HasSubstr("[Trainer] step 1: the loss is"),
                               HasSubstr("parameter '2.weight' is the first with a value that is not finite")));
  }
  {
    Sequential net = small_net();
    ArrayDataset bad = two_classes(8);
    bad.features.write<float>()[2 * 5] = inf;  // in the second batch
    EXPECT_THAT(
        message_of(net, bad, loss_of_labels()),
        testing::AllOf(HasSubstr("step 2: the loss is"), HasSubstr("the batch itself has values that are not")));
  }
  {
    Sequential net = small_net();
    const LossFunction overflows = [](const Tensor& logits, const Tensor&) { return mean(exp(logits * 1e4 + 1e4)); };
    EXPECT_THAT(message_of(net, data, overflows),
                testing::AllOf(HasSubstr("the loss is inf; all parameters are finite; '0.weight' is the first whose")));
  }
  {
    Sequential net = small_net();
    EXPECT_THAT(message_of(net, data, loss_of_labels(), 1e38),
                testing::AllOf(HasSubstr("step 2: the loss is nan; all parameters are finite; '0.weight' is the first"),
                               HasSubstr("try a lower learning rate")));
  }
}

/// Notes the mode that it is called in.
struct Spy : Module<Spy> {
  void visit(Visitor& v) { v("inner", inner); }
  Tensor forward(const Tensor& x) const {
    modes->push_back(training());
    grads->push_back(context().grad);
    return inner(x);
  }
  Linear inner{2, 2, {.seed = 0}};
  std::shared_ptr<std::vector<bool>> modes = std::make_shared<std::vector<bool>>(),
                                     grads = std::make_shared<std::vector<bool>>();
};

// Case Y19: evaluation leaves each module in its own mode.
TEST(Trainer, EachModulesOwnModeComesBack) {
  Spy net;
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1});
  net.inner.eval();  // a frozen part
  static_cast<void>(trainer.evaluate(two_classes(4)));
  EXPECT_THAT(*net.modes, ElementsAre(false));
  EXPECT_THAT(*net.grads, ElementsAre(false));
  EXPECT_TRUE(net.training());
  EXPECT_FALSE(net.inner.training());
  net.eval();
  Loader loader(two_classes(4), {.batch = 4});
  trainer.fit(loader);
  EXPECT_TRUE(net.modes->back());
  EXPECT_TRUE(net.grads->back());
  EXPECT_FALSE(net.training());
}

TEST(Trainer, DropoutIsKeyedByTheSeedAndTheStep) {
  const auto losses = [](std::uint64_t seed) {
    Sequential net{Linear(2, 16, {.seed = 0}), Dropout(0.5), Linear(16, 2, {.seed = 1})};
    SGD optimizer(net.parameters(), {.lr = 1e-30});  // weights stay: only the masks differ
    Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 2, .seed = seed});
    Loader loader(two_classes(8), {.batch = 8});
    std::vector<double> out;
    for (const EpochMetrics& row : trainer.fit(loader).epochs) out.push_back(row.loss);
    return out;
  };
  EXPECT_EQ(losses(1), losses(1));
  EXPECT_NE(losses(1), losses(2));
  EXPECT_NE(losses(1)[0], losses(1)[1]);
}

TEST(Trainer, EachStepIsAnEventWithItsParts) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 2});
  Loader loader(two_classes(12), {.batch = 8});
  EventRecorder recorder;
  {
    const Scoped<&Context::events> on(&recorder);
    trainer.fit(loader);
  }
  std::map<std::string, int> counts;
  for (const RecordedEvent& event : recorder.take()) ++counts[event.name];
  for (const char* name : {"step", "data", "forward", "backward", "optimizer"}) EXPECT_EQ(counts[name], 4) << name;
}

TEST(Trainer, ClipsTheGlobalNorm) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 1});
  const std::vector<double> before = net.parameters()[0].to_vector();
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1, .clip_norm = 1e-3});
  Loader loader(two_classes(8), {.batch = 8});
  trainer.fit(loader);
  const std::vector<double> after = net.parameters()[0].to_vector();
  double moved = 0;
  for (std::size_t i = 0; i < after.size(); ++i) moved += (after[i] - before[i]) * (after[i] - before[i]);
  EXPECT_GT(moved, 0);
  EXPECT_LE(std::sqrt(moved), 1.001e-3);  // one step at learning rate 1; roundings of weights near 1
}

TEST(Trainer, ANormThatIsNotFiniteNamesTheGradient) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 1});
  const std::vector<double> before = values_of(net);
  const LossFunction steep = [](const Tensor& logits, const Tensor&) {
    return mean((logits - logits.detach()) * 1e30 * 1e30);  // 0, with a slope beyond float32
  };
  Trainer trainer(net, optimizer, steep, {.epochs = 1, .clip_norm = 1});
  Loader loader(two_classes(8), {.batch = 8});
  try {
    trainer.fit(loader);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("[Trainer] step 1: the loss is finite, and the gradients' norm is"),
                               HasSubstr("'0.weight' is the first whose gradient is not finite")));
  }
  EXPECT_EQ(values_of(net), before);
}

TEST(Trainer, SteadyTrainingAsksTheSystemForNoMemory) {
  Sequential net = small_net();
  Adam optimizer(net.parameters(), {});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 4});
  Loader loader(two_classes(40), {.batch = 8, .shuffle = true});
  std::vector<std::uint64_t> asked;
  trainer.fit(loader,
              {.epoch_end = [&](const EpochMetrics&) { asked.push_back(memory::report().system_allocations); }});
  EXPECT_EQ(asked[1], asked[3]);
}

TEST(Trainer, RefusesWhatCannotWork) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  EXPECT_THROW(Trainer(net, optimizer, loss_of_labels(), {.epochs = 0}), ValueError);
  EXPECT_THROW(Trainer(net, optimizer, loss_of_labels(), {.clip_norm = 0}), ValueError);
  EXPECT_THROW(Trainer(net, optimizer, loss_of_labels(), {.accumulate = 0}), ValueError);
  EXPECT_THROW(Trainer(net, optimizer, loss_of_labels(), {.early_stopping = EarlyStoppingOptions{.monitor = "lss"}}),
               ValueError);
  const Trainer trainer(net, optimizer, loss_of_labels());
  EXPECT_THROW(static_cast<void>(trainer.evaluate(ArrayDataset{})), ValueError);
  EXPECT_THROW(static_cast<void>(trainer.evaluate(two_classes(2), 0)), ValueError);
}

TEST(Evaluate, ClassesAreThoseThatAccuracyCounts) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1});
  Loader loader(two_classes(50), {.batch = 8});
  trainer.fit(loader);
  const ArrayDataset data = two_classes(9);
  const Evaluation evaluation = evaluate(net, loss_of_labels(), data, 4), by_trainer = trainer.evaluate(data, 4);
  EXPECT_EQ(evaluation.loss, by_trainer.loss);
  EXPECT_EQ(evaluation.accuracy, by_trainer.accuracy);
  const Tensor classes = predict_classes(net, data, 4);  // in batches of 4, 4 and 1
  EXPECT_EQ(classes.shape(), (Shape{9}));
  EXPECT_EQ(classes.dtype(), int64);
  EXPECT_EQ(classes.to_vector(), argmax(net(data.features), 1).to_vector());
  EXPECT_EQ(accuracy(classes, data.targets), evaluation.accuracy);
  EXPECT_THROW(static_cast<void>(predict_classes(net, ArrayDataset{})), ValueError);
  EXPECT_THROW(static_cast<void>(predict_classes(net, data, 0)), ValueError);
}

TEST(CountCorrect, CountsRowsOfLogits) {
  const Tensor logits = Tensor::from<float>({1, 2, 3, 0, 5, 5}, {3, 2});
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({1, 0, 0})), 3);  // a tie: the first
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({0, 1, 1})), 0);
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({1, 0, 0}), 0), 1);
  EXPECT_EQ(count_correct(logits, Tensor::zeros({3})), std::nullopt);
  EXPECT_EQ(count_correct(logits, Tensor::from<std::int64_t>({0, 1})), std::nullopt);
}

}  // namespace
}  // namespace everyo
