// A run that stops anywhere and goes on ends with the bits of one that never stopped.
#include <gmock/gmock.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "everyo/random.h"
#include "train/runs.h"

namespace everyo {
namespace {

using testing_train::loss_of_labels;
using testing_train::two_classes;

// A net whose steps depend on all that a state must hold: dropout's keys, batch norm's statistics, the moments, the
// schedule's step; and an end that depends on early stopping's count and its best weights.
Sequential noisy_net() {
  return Sequential(Linear(2, 8, {.seed = 1}), BatchNorm1D(8), ReLU(), Dropout(0.3), Linear(8, 2, {.seed = 2}));
}

Sample jitter(Sample sample, Generator& generator) {
  for (float& value : sample.features.data<float>()) value += static_cast<float>(generator.normal(0, 0.1));
  return sample;
}

struct NoisyRun {
  explicit NoisyRun(const char* optimizer_name = "adam", bool early_stopping = true, std::int32_t workers = 0)
      : optimizer(make_optimizer(optimizer_name, net.parameters(), 0.03)),
        trainer(net, *optimizer, loss_of_labels(),
                {.epochs = 8,
                 .seed = 5,
                 .clip_norm = 0.5,
                 .accumulate = 3,
                 .schedule = make_schedule("cosine", {.steps = 56, .warm_up = 9}),
                 .early_stopping = early_stopping ? std::optional(EarlyStoppingOptions{.patience = 2}) : std::nullopt}),
        loader(two_classes(54), {.batch = 8, .shuffle = true, .seed = 3, .transform = jitter, .workers = workers}) {
  }  // 7 steps an epoch
  TrainResult fit(std::int64_t stop_after = 1000) {
    return trainer.fit(loader, {.progress = [&](const TrainProgress&) { return trainer.steps() < stop_after; },
                                .validation = &held_out});
  }
  Sequential net = noisy_net();
  std::unique_ptr<Optimizer> optimizer;
  Trainer trainer;
  Loader loader;
  ArrayDataset held_out = two_classes(9);
};

TEST(Resume, F08_F12_AnywhereGivesTheBitsOfNeverHavingStopped) {
  for (const char* optimizer : {"adam", "sgd"}) {
    NoisyRun whole(optimizer);
    const TrainResult result = whole.fit();
    const std::int64_t steps = whole.trainer.steps();
    ASSERT_TRUE(result.early) << "early stopping should have a part in this";
    ASSERT_GT(steps, 25);
    const std::vector<std::int64_t> order = Generator(1).permutation(steps - 1);
    for (std::size_t i = 0; i < 20; ++i) {
      const std::int64_t stop = order[i] + 1;
      const auto workers = static_cast<std::int32_t>(i % 4);  // before the stop, and another number after it
      NoisyRun first(optimizer, true, workers);
      static_cast<void>(first.fit(stop));
      ASSERT_EQ(first.trainer.steps(), stop);
      const StateTree state = first.trainer.state(first.loader);
      NoisyRun second(optimizer, true, 3 - workers);
      second.trainer.load(state, second.loader);
      const TrainResult rest = second.fit();
      EXPECT_EQ(second.trainer.steps(), steps);
      EXPECT_TRUE(second.trainer.state(second.loader) == whole.trainer.state(whole.loader)) << optimizer << stop;
      ASSERT_FALSE(rest.epochs.empty());
      // The epoch that was interrupted has the whole epoch's figures.
      const EpochMetrics& same = result.epochs[result.epochs.size() - rest.epochs.size()];
      EXPECT_EQ(rest.epochs.front().loss, same.loss) << stop;
      EXPECT_EQ(rest.epochs.front().accuracy, same.accuracy) << stop;
      EXPECT_EQ(rest.epochs.front().learning_rate, same.learning_rate) << stop;
      EXPECT_EQ(rest.epochs.back().validation->loss, result.epochs.back().validation->loss) << stop;
      EXPECT_TRUE(rest.early);
    }
  }
}

TEST(Resume, AStateSavedAtTheEndOfAnEpochGoesOnBeyondTheBestWeights) {
  NoisyRun whole;
  StateTree at_end;
  const auto save = [&](const EpochMetrics&) { at_end = whole.trainer.state(whole.loader); };
  static_cast<void>(whole.trainer.fit(whole.loader, {.epoch_end = save, .validation = &whole.held_out}));
  NoisyRun again;
  again.trainer.load(at_end, again.loader);
  const TrainResult nothing_more = again.fit();
  EXPECT_TRUE(nothing_more.epochs.empty());
  EXPECT_TRUE(nothing_more.early);
  EXPECT_TRUE(again.trainer.state(again.loader) == whole.trainer.state(whole.loader)) << "the best weights are back";
}

TEST(Resume, AStateThatDoesNotFitChangesNothing) {
  NoisyRun run;
  static_cast<void>(run.fit(10));
  const StateTree good = run.trainer.state(run.loader);
  const auto refused = [&](auto&& change) {
    StateTree bad = good;
    const std::vector<float> nines(8, 9);
    bad["model"]["0.bias"] = StateArray::copy_of({float32, {8}}, std::as_bytes(std::span(nines)));
    change(bad);
    EXPECT_THROW(run.trainer.load(bad, run.loader), Error);
    EXPECT_TRUE(run.trainer.state(run.loader) == good);
  };
  refused([](StateTree& s) { s["trainer"]["step"] = -1; });
  refused([](StateTree& s) { s["trainer"]["labels"] = 0; });
  refused([](StateTree& s) { s["loader"]["seed"] = 4; });
  refused([](StateTree& s) { s["optimizer"]["optimizer"] = "SGD"; });
  refused([](StateTree& s) { s["model"]["extra"] = s["model"]["0.bias"]; });
  refused([](StateTree& s) { s["schedule"]["step"] = -1; });
  refused([](StateTree& s) { s["early_stopping"]["monitor"] = "loss"; });
  NoisyRun other("adam", false);
  try {
    other.trainer.load(good, other.loader);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("saved with early_stopping, and this trainer is without"));
  }
}

// The places of all whole numbers of a state.
void find_numbers(const StateTree& tree, std::vector<std::string>& place,
                  std::vector<std::vector<std::string>>& found) {
  if (tree.is<std::int64_t>()) found.push_back(place);
  if (!tree.is<StateTree::Map>()) return;
  for (const auto& [name, entry] : tree.entries()) {
    place.push_back(name);
    find_numbers(entry, place, found);
    place.pop_back();
  }
}

TEST(Resume, NoNumberOfAFileOverflowsOrTakesMemory) {
  NoisyRun saved;
  static_cast<void>(saved.fit(10));
  const StateTree good = saved.trainer.state(saved.loader);
  std::vector<std::string> place;
  std::vector<std::vector<std::string>> places;
  find_numbers(good, place, places);
  EXPECT_THAT(places, testing::IsSupersetOf(std::vector<std::vector<std::string>>{{"trainer", "step"},
                                                                                  {"trainer", "samples"},
                                                                                  {"trainer", "counted"},
                                                                                  {"trainer", "labels"},
                                                                                  {"trainer", "ranks"},
                                                                                  {"schedule", "step"},
                                                                                  {"early_stopping", "wait"},
                                                                                  {"early_stopping", "best_epoch"},
                                                                                  {"loader", "epoch"},
                                                                                  {"loader", "position"}}));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& where : places)
    for (const std::int64_t value : {-most - 1, std::int64_t{-1}, (std::int64_t{1} << 53) + 1, most - 1, most}) {
      StateTree bad = good;
      StateTree* entry = &bad;
      for (const std::string& name : where) entry = &(*entry)[name];
      *entry = value;
      NoisyRun run;
      const StateTree before = run.trainer.state(run.loader);
      try {
        run.trainer.load(bad, run.loader);
        // An epoch of the loader alone may be so late: then there is nothing left to do.
        EXPECT_EQ(where.back(), "epoch") << value;
        EXPECT_TRUE(run.fit().epochs.empty());
      } catch (const Error& error) {
        const std::string said =
            where.back() == "seed" ? std::to_string(static_cast<std::uint64_t>(value)) : std::to_string(value);
        EXPECT_THAT(error.what(), testing::HasSubstr(said)) << where.back();
        EXPECT_TRUE(run.trainer.state(run.loader) == before) << where.back();
      }
    }
}

TEST(Resume, AStateOfVersion04GoesOn) {
  // It has no counts of targets, no rate, and no part for what there was not.
  Sequential net = noisy_net();
  Adam optimizer(net.parameters(), {});
  Trainer trainer(net, optimizer, loss_of_labels(), {.epochs = 1});
  Loader loader(two_classes(50), {.batch = 8});
  static_cast<void>(trainer.fit(loader, {.progress = [](const TrainProgress& now) { return now.step < 3; }}));
  const StateTree state = trainer.state(loader);
  StateTree old;
  for (const char* part : {"model", "optimizer", "loader"}) old[part] = state.at(part);
  for (const char* key : {"step", "loss_sum", "correct", "samples"}) old["trainer"][key] = state.at("trainer").at(key);
  trainer.load(old, loader);
  EXPECT_EQ(trainer.state(loader).at("trainer").get<std::int64_t>("labels"), 24);
  const TrainResult rest = trainer.fit(loader);
  EXPECT_EQ(rest.epochs.back().samples, 50);
}

}  // namespace
}  // namespace everyo
