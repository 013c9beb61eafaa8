// What one step of a Trainer is made of: accumulation, a schedule, a validation.
#include <gmock/gmock.h>

#include <limits>
#include <map>

#include "everyo/events.h"
#include "everyo/logging.h"
#include "train/runs.h"

namespace everyo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_train::loss_of_labels;
using testing_train::small_net;
using testing_train::two_classes;
using testing_train::values_of;
using Values = std::vector<double>;

constexpr std::int64_t ignored = -100;
// As a loss of one's own may be: a mean over nothing is NaN.
Tensor careless_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor sum = cross_entropy(logits, labels, {.reduction = Reduction::sum, .ignore_index = ignored});
  return sum / static_cast<double>(count_targets(labels, ignored));
}

struct Trained {
  Values weights, losses, accuracies;
  std::int64_t steps = 0;
};
Trained train(const ArrayDataset& data, const TrainConfig& config, std::int64_t batch, const LossFunction& loss) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.5});
  Trainer trainer(net, optimizer, loss, config);
  Loader loader(data, {.batch = batch});
  Trained out;
  for (const EpochMetrics& row : trainer.fit(loader).epochs) {
    out.losses.push_back(row.loss);
    out.accuracies.push_back(row.accuracy);
  }
  out.weights = values_of(net);
  out.steps = trainer.steps();
  return out;
}

/// Steps a few: each rounds its gradient anew, by a few ulp of values near 1.
void expect_close(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 4e-6) << i;
}

ArrayDataset with_ignored(std::int64_t rows, const std::vector<std::int64_t>& counting) {
  ArrayDataset data = two_classes(rows);
  const auto labels = data.targets.write<std::int64_t>();
  for (std::int64_t i = 0; i < rows; ++i)
    if (std::ranges::find(counting, i) == counting.end()) labels[static_cast<std::size_t>(i)] = ignored;
  return data;
}

TEST(Accumulate, G05_AShortLastWindowIsDividedByItsOwnCount) {
  const ArrayDataset data = two_classes(10);  // windows of 8 and 2 rows
  const Trained whole = train(data, {.epochs = 2}, 8, loss_of_labels());
  for (const std::int64_t k : {2, 3, 4, 8}) {
    const Trained parts = train(data, {.epochs = 2, .accumulate = k}, 8, loss_of_labels());
    EXPECT_EQ(parts.steps, 4);
    expect_close(parts.weights, whole.weights);
    expect_close(parts.losses, whole.losses);
    EXPECT_EQ(parts.accuracies, whole.accuracies);
  }
}

TEST(Accumulate, G03_AWindowWithoutALabelMakesNoStep) {
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); }, LogLevel::warning);
  // Windows of 8 rows: 5 labels (4 and 1 of its halves), none, 1 (in its second half), none.
  const ArrayDataset data = with_ignored(32, {0, 1, 2, 3, 6, 21});
  const TrainConfig config{.epochs = 1, .clip_norm = 100, .accumulate = 2, .count = {.ignore_index = ignored}};
  const Trained parts = train(data, config, 8, careless_loss);
  EXPECT_EQ(parts.steps, 2);
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("no target of the batch after step 1"), HasSubstr("makes no step"))));
  set_log_sink({});
  // The same two steps on the labelled rows alone.
  const std::vector<std::int64_t> first{0, 1, 2, 3, 6}, second{21};
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.5});
  Values losses;
  for (const auto& rows : {first, second}) {
    const ArrayDataset part(data.rows(rows));
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(part.features), part.targets);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  expect_close(parts.weights, values_of(net));
  expect_close(parts.losses, {(5 * losses[0] + losses[1]) / 6});
}

TEST(Accumulate, OneCountIsOfTheUsersOwn) {
  // Rows weigh what their first feature says, in the loss and in the count.
  const ArrayDataset data = two_classes(9);
  const LossFunction loss = [](const Tensor& logits, const Tensor& labels) {
    const Tensor each = cross_entropy(logits, labels, {.reduction = Reduction::none});
    const Tensor weight = cast(labels, float32) * 3.0 + 1.0;  // 1 or 4
    return sum(each * weight) / sum(weight);
  };
  const TargetCount count{.of_targets = [](const Tensor& labels) {
    return static_cast<std::int64_t>(sum(cast(labels, float32) * 3.0 + 1.0).item());
  }};
  const Trained whole = train(data, {.epochs = 2, .count = count}, 9, loss);
  expect_close(train(data, {.epochs = 2, .accumulate = 4, .count = count}, 9, loss).weights, whole.weights);
}

TEST(Accumulate, OnePartHasTheBitsOfNone) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.5});
  const ArrayDataset data = two_classes(20);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (Loader loader(data, {.batch = 8}); const auto& [x, y] : loader) {
      optimizer.zero_grad();
      cross_entropy(net(x), y).backward();
      optimizer.step();
    }
  EXPECT_EQ(train(data, {.epochs = 2}, 8, loss_of_labels()).weights, values_of(net));
}

TEST(Accumulate, EachPartIsAForwardAndABackward) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1, .accumulate = 3});
  Loader loader(two_classes(8), {.batch = 4});
  EventRecorder recorder;
  {
    const Scoped<&Context::events> on(&recorder);
    trainer.fit(loader);
  }
  std::map<std::string, int> counts;
  for (const RecordedEvent& event : recorder.take()) ++counts[event.name];
  for (const char* name : {"step", "data", "optimizer"}) EXPECT_EQ(counts[name], 2) << name;
  for (const char* name : {"forward", "backward"}) EXPECT_EQ(counts[name], 6) << name;
}

TEST(Accumulate, ALossThatIsNotFiniteIsFoundInAnyPart) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const Values before = values_of(net);
  ArrayDataset bad = two_classes(8);
  bad.features.write<float>()[2 * 7] = std::numeric_limits<float>::infinity();  // in the last part
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1, .accumulate = 4});
  Loader loader(bad, {.batch = 8});
  try {
    trainer.fit(loader);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 1: the loss is"), HasSubstr("the batch itself has values")));
  }
  EXPECT_EQ(values_of(net), before);
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(Fit, TheScheduleSetsTheRateOfEachStep) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.4});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 3, .schedule = warm_up(2, step_schedule(2, 0.5))});
  Loader loader(two_classes(8), {.batch = 4});  // 2 steps an epoch
  Values rates;
  for (const EpochMetrics& row : trainer.fit(loader).epochs) rates.push_back(row.learning_rate);
  EXPECT_THAT(rates, ElementsAre(0.4, 0.4, 0.2));  // steps 2, 4, 6: warmed up, 1, 1/2
  EXPECT_EQ(optimizer.lr(), 0.1);                  // of a step 7
}

TEST(Fit, AValidationIsEvaluatedAfterEachEpoch) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 3});
  Loader loader(two_classes(20), {.batch = 4});
  const ArrayDataset held_out = two_classes(7);
  int calls = 0;
  const auto compare = [&](const EpochMetrics& row) {
    ++calls;
    const Evaluation now = trainer.evaluate(held_out);
    EXPECT_EQ(metric(row, "val_loss"), now.loss);
    EXPECT_EQ(metric(row, "val_accuracy"), now.accuracy);
    EXPECT_FALSE(row.best) << "nothing is watched";
  };
  const TrainResult result = trainer.fit(loader, {.epoch_end = compare, .validation = &held_out});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(metric(result.epochs[1], "loss"), result.epochs[1].loss);
  EXPECT_EQ(metric(result.epochs[1], "accuracy"), result.epochs[1].accuracy);
  EXPECT_THROW(static_cast<void>(metric(result.epochs[1], "val_los")), ValueError);
  EXPECT_THROW(static_cast<void>(metric({}, "val_loss")), ValueError);
}

TEST(Fit, ValidationCountsAsTrainingDoes) {
  Sequential net = small_net();
  const ArrayDataset data = with_ignored(12, {0, 1, 5, 11});
  const std::vector<std::int64_t> counting{0, 1, 5, 11};
  const Evaluation some = evaluate(net, careless_loss, data, 4, {.ignore_index = ignored});
  const Evaluation right = evaluate(net, loss_of_labels(), ArrayDataset(data.rows(counting)));
  EXPECT_NEAR(some.loss, right.loss, 1e-6);  // float32 means of parts
  EXPECT_EQ(some.accuracy, right.accuracy);
  EXPECT_EQ(some.samples, 12);
  const Evaluation none = evaluate(net, careless_loss, with_ignored(3, {}), 4, {.ignore_index = ignored});
  EXPECT_TRUE(std::isnan(none.loss)) << none.loss;
  EXPECT_TRUE(std::isnan(none.accuracy)) << none.accuracy;
}

TEST(Fit, WhereNothingCountsThereIsNoBest) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, careless_loss,
                  {.epochs = 4, .count = {.ignore_index = ignored}, .early_stopping = {{.patience = 1}}});
  const ArrayDataset nothing = with_ignored(3, {});
  Loader loader(with_ignored(4, {}), {.batch = 2});
  const TrainResult result = trainer.fit(loader, {.validation = &nothing});
  EXPECT_TRUE(result.early);
  ASSERT_EQ(result.epochs.size(), 2U) << "NaN is waited for as what is no better";
  for (const EpochMetrics& row : result.epochs) {
    for (const char* name : {"loss", "accuracy", "val_loss", "val_accuracy"})
      EXPECT_TRUE(std::isnan(metric(row, name))) << name;
    EXPECT_FALSE(row.best);
  }
  EXPECT_EQ(trainer.early_stopping()->best_epoch(), 0);
}

}  // namespace
}  // namespace everyo
