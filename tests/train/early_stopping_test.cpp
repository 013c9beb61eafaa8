#include "everyo/early_stopping.h"

#include <gmock/gmock.h>

#include <cmath>

#include "train/runs.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing_train::loss_of_labels;
using testing_train::small_net;
using testing_train::two_classes;
using testing_train::values_of;

void shift(ModuleBase& net) { net.parameters()[0].write<float>()[0] += 1; }

TEST(EarlyStopping, StopsAfterMoreThanPatienceEpochsWithoutAnImprovement) {
  Sequential net = small_net();
  EarlyStopping early(net, {.patience = 2});
  EXPECT_TRUE(std::isinf(early.best()));
  EXPECT_TRUE(early.update(1, 1.0));
  EXPECT_FALSE(early.update(2, 1.0)) << "as good is no better";
  EXPECT_TRUE(early.update(3, 0.5));
  const std::vector<double> best = values_of(net);
  for (const std::int64_t epoch : {4, 5}) {
    shift(net);
    EXPECT_FALSE(early.update(epoch, 0.7));
    EXPECT_FALSE(early.should_stop()) << epoch;
  }
  EXPECT_FALSE(early.update(6, std::nan("")));
  EXPECT_TRUE(early.should_stop());
  EXPECT_EQ(early.best(), 0.5);
  EXPECT_EQ(early.best_epoch(), 3);
  EXPECT_EQ(early.wait(), 3);
  EXPECT_NE(values_of(net), best);
  early.restore();
  EXPECT_EQ(values_of(net), best);
}

TEST(EarlyStopping, MoreIsBetterByMoreThanTheLeast) {
  Sequential net = small_net();
  EarlyStopping early(net, {.monitor = "accuracy", .patience = {}, .min_delta = 0.1, .mode = MonitorMode::max});
  EXPECT_TRUE(early.update(1, 0.5));
  EXPECT_FALSE(early.update(2, 0.59));
  EXPECT_TRUE(early.update(3, 0.61));
  for (std::int64_t epoch = 4; epoch < 100; ++epoch) early.update(epoch, 0.6);
  EXPECT_FALSE(early.should_stop()) << "without patience it only watches";
}

TEST(EarlyStopping, WeightsMayStayThoseOfTheLastEpoch) {
  Sequential net = small_net();
  EarlyStopping early(net, {.restore_best_weights = false});
  early.update(1, 1.0);
  shift(net);
  const std::vector<double> last = values_of(net);
  early.restore();
  EXPECT_EQ(values_of(net), last);
}

TEST(EarlyStopping, StateGoesOnAndOneThatDoesNotFitChangesNothing) {
  Sequential net = small_net();
  EarlyStopping early(net, {.patience = 1});
  EXPECT_THROW(EarlyStopping(net, {.patience = -1}), ValueError);
  EXPECT_THROW(EarlyStopping(net, {.min_delta = -1}), ValueError);
  early.update(1, 1.0);
  const std::vector<double> best = values_of(net);
  const StateTree saved = early.state();
  shift(net);
  early.update(2, 0.5);
  const StateTree later = early.state();
  EarlyStopping other(net, {.patience = 1});
  other.load(saved);
  EXPECT_TRUE(other.state() == saved);
  other.update(2, 2);
  EXPECT_FALSE(other.should_stop());
  other.update(3, 2);
  EXPECT_TRUE(other.should_stop());
  other.restore();
  EXPECT_EQ(values_of(net), best);

  const auto refused = [&](auto&& change) {
    StateTree bad = saved;
    change(bad);
    EXPECT_THROW(early.load(bad), StateError);
    EXPECT_TRUE(early.state() == later);
  };
  refused([](StateTree& s) { s["monitor"] = "loss"; });
  refused([](StateTree& s) { s["mode"] = "max"; });
  refused([](StateTree& s) { s["wait"] = -1; });
  refused([](StateTree& s) { s["weights"]["0.bias"] = s["weights"]["0.weight"]; });
  refused([](StateTree& s) { s["weights"]["extra"] = s["weights"]["0.weight"]; });
}

struct WatchedRun {
  Sequential net = small_net();
  SGD optimizer{net.parameters(), {.lr = 0.1}};
  Loader loader{two_classes(20), {.batch = 4}};
  Trainer trainer;
  explicit WatchedRun(const EarlyStoppingOptions& early, std::int64_t epochs = 50)
      : trainer(net, optimizer, loss_of_labels(), {.epochs = epochs, .early_stopping = early}) {}
};

TEST(EarlyStopping, ATrainerEndsWithTheBestWeights) {
  WatchedRun run({.patience = 2});
  // Labels the other way round: training makes this validation worse from the first epoch on.
  ArrayDataset against = two_classes(10);
  for (std::int64_t& label : against.targets.write<std::int64_t>()) label = 1 - label;
  std::vector<double> first;
  std::vector<bool> best;
  const auto note = [&](const EpochMetrics& row) {
    best.push_back(row.best);
    if (row.epoch == 1) first = values_of(run.net);
  };
  const TrainResult result = run.trainer.fit(run.loader, {.epoch_end = note, .validation = &against});
  EXPECT_THAT(best, testing::ElementsAre(true, false, false, false));
  EXPECT_TRUE(result.early);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(run.trainer.early_stopping()->best_epoch(), 1);
  EXPECT_EQ(values_of(run.net), first);
  EXPECT_TRUE(run.trainer.fit(run.loader, {.validation = &against}).epochs.empty()) << "it has ended";
}

TEST(EarlyStopping, ARunThatEndsByItselfHasTheBestWeightsToo) {
  WatchedRun run({.monitor = "accuracy", .mode = MonitorMode::max}, 3);
  std::vector<double> at_best;
  const auto note = [&](const EpochMetrics& row) {
    if (row.best) at_best = values_of(run.net);
  };
  const TrainResult result = run.trainer.fit(run.loader, {.epoch_end = note});
  EXPECT_FALSE(result.early);
  EXPECT_LT(run.trainer.early_stopping()->best_epoch(), 3) << "or the last weights are the best";
  EXPECT_EQ(values_of(run.net), at_best);
}

TEST(EarlyStopping, AStopAtTheVeryLastStepStopsNothing) {
  for (const std::int64_t at : {14, 15}) {
    WatchedRun run({.monitor = "accuracy", .mode = MonitorMode::max}, 3);  // of 5 steps each
    std::vector<double> at_best;
    const auto note = [&](const EpochMetrics& row) {
      if (row.best) at_best = values_of(run.net);
    };
    const auto until = [&](const TrainProgress&) { return run.trainer.steps() < at; };
    const TrainResult result = run.trainer.fit(run.loader, {.progress = until, .epoch_end = note});
    EXPECT_EQ(run.trainer.steps(), at);
    EXPECT_EQ(result.stopped, at < 15) << "a step is left, or none";
    EXPECT_EQ(values_of(run.net) == at_best, at == 15) << "a whole run ends with its best weights";
  }
}

TEST(EarlyStopping, WhatItWatchesMustBeThere) {
  WatchedRun run({});
  try {
    run.trainer.fit(run.loader);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no val_loss without a validation; give fit one, or take loss"));
  }
  EXPECT_EQ(run.trainer.steps(), 0);
}

}  // namespace
}  // namespace everyo
