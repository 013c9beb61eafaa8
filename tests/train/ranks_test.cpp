#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "everyo/logging.h"
#include "everyo/ops.h"
#include "everyo/parallel.h"
#include "runs.h"

// What a Trainer does where ranks are not alike.
namespace everyo {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing_train::small_net, testing_train::two_classes;

const SpawnOptions patient{.timeout = Timeout(60)};
constexpr std::int64_t ignored = -100;

LoaderOptions loader_of(const ProcessGroup* group, std::int64_t batch, std::int64_t shards = 0) {
  if (group == nullptr) return {.batch = batch};
  return {.batch = batch, .rank = group->rank(), .world_size = group->world_size(), .shards = shards};
}

const LossFunction& loss_of_counted() {
  static const LossFunction loss = [](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels, {.ignore_index = ignored});
  };
  return loss;
}

// Rows of which only some count.
ArrayDataset counted(std::int64_t n, const std::vector<std::int64_t>& rows) {
  ArrayDataset data = two_classes(n);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(n), ignored);
  for (const std::int64_t row : rows)
    labels[static_cast<std::size_t>(row)] = data.targets.data<std::int64_t>()[static_cast<std::size_t>(row)];
  return {data.features, Tensor::from<std::int64_t>(labels, {n})};
}

std::string text_of(ModuleBase& net) { return fmt::format("{:a}", fmt::join(testing_train::values_of(net), " ")); }

void expect_near(const std::string& text, ModuleBase& right) {
  const std::vector<double> wanted = testing_train::values_of(right);
  std::size_t at = 0;
  for (const double v : wanted) {
    std::size_t used = 0;
    EXPECT_NEAR(std::stod(text.substr(at), &used), v, 5e-7);  // as D6's drift
    at += used;
  }
}

// One process against `ranks`: epochs over data whose targets count or not.
void compare(const ArrayDataset& data, std::int64_t batch, int ranks, const TrainConfig& config) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, loss_of_counted(), config);
  Loader loader(data, {.batch = batch});
  const TrainResult right = trainer.fit(loader, {.validation = &data});
  const auto results = run_threads(
      ranks,
      [&](ProcessGroup& group) {
        Sequential own = small_net(static_cast<std::uint64_t>(10 * group.rank()));  // all begin as rank 0
        SGD steps(own.parameters(), {.lr = 0.1});
        TrainConfig with = config;
        with.group = &group;
        Trainer ranked(own, steps, loss_of_counted(), with);
        Loader part(data, loader_of(&group, batch));
        const TrainResult result = ranked.fit(part, {.validation = &data});
        std::string text = text_of(own) + ";";
        for (const EpochMetrics& row : result.epochs)
          text += fmt::format(" {:a} {:a} {} {:a} {:a}", row.loss, row.accuracy, row.samples, row.validation->loss,
                              row.validation->accuracy);
        return text + fmt::format(" {}", ranked.steps() == trainer.steps());
      },
      patient);
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_THAT(results[0], HasSubstr("true"));
  expect_near(results[0], net);
  EXPECT_THAT(results[0], HasSubstr(fmt::format(" {} ", right.epochs[0].samples)));
  // Figures of one process but for rounding.
  double loss = 0;
  std::sscanf(results[0].substr(results[0].find(';') + 1).c_str(), " %la", &loss);
  EXPECT_NEAR(loss, right.epochs[0].loss, 1e-6);
}

TEST(Ranks, G02_EachTargetWeighsTheSame) {
  // Of 12 rows rank 0 has the first six, of which five count; rank 1 has one.
  compare(counted(12, {0, 1, 2, 3, 4, 8}), 12, 2, {.epochs = 3, .count = {.ignore_index = ignored}});
}
TEST(Ranks, D21_ARankWithoutATargetThatCountsTakesPart) {
  compare(counted(12, {0, 1, 2}), 12, 2, {.epochs = 3, .count = {.ignore_index = ignored}});
}
TEST(Ranks, ABatchWithoutATargetThatCountsMakesNoStepOnAnyRank) {
  compare(counted(12, {6, 7, 8, 11}), 6, 2, {.epochs = 2, .count = {.ignore_index = ignored}});
}
TEST(Ranks, D03_ThoseOutOfRowsWaitForTheRest) {
  compare(two_classes(9), 4, 3, {.epochs = 3});  // batches of 4, 4 and 1 rows
}
TEST(Ranks, AccumulateAndClipTogether) {
  compare(two_classes(30), 15, 2, {.epochs = 3, .clip_norm = 0.05, .accumulate = 3});
}

TEST(Ranks, DrawMasksOfTheirOwn) {
  // Equal rows on both ranks: with equal masks, the sum of outputs that dropout left would be the same.
  const auto masks = [](std::int64_t shards) {
    return run_threads(
        2,
        [shards](ProcessGroup& group) {
          Sequential net(Dropout(0.5), Linear(64, 1, {.seed = 1}));
          SGD optimizer(net.parameters(), {.lr = 0.1});
          double seen = 0;
          const LossFunction loss = [&seen](const Tensor& prediction, const Tensor& targets) {
            seen = prediction.to_vector()[0];
            return mse_loss(prediction, targets);
          };
          Trainer trainer(net, optimizer, loss, {.epochs = 1, .group = &group, .virtual_shards = shards});
          Loader loader(Tensor::ones({2, 64}), Tensor::ones({2, 1}), loader_of(&group, 2, shards));
          trainer.fit(loader);
          return fmt::format("{:a}", seen);
        },
        patient);
  };
  for (const std::int64_t shards : {0, 2}) {
    const auto seen = masks(shards);
    EXPECT_NE(seen[0], seen[1]) << shards;
  }
}

TEST(Ranks, StopAtTheSameStep) {
  const auto results = run_threads(
      3,
      [](ProcessGroup& group) {
        Sequential net = small_net();
        SGD optimizer(net.parameters(), {.lr = 0.1});
        Trainer trainer(net, optimizer, testing_train::loss_of_labels(), {.epochs = 5, .group = &group});
        Loader loader(two_classes(30), loader_of(&group, 6));
        FitOptions options;
        int steps = 0;
        if (group.rank() == 2) options.progress = [&](const TrainProgress&) { return ++steps < 7; };
        const TrainResult result = trainer.fit(loader, options);
        return fmt::format("{} {}", result.stopped, trainer.steps());
      },
      patient);
  EXPECT_THAT(results, Each("true 7"));
}

// What ranks say when one of them has trouble, each caught on its own rank.
std::vector<std::string> troubles(std::int64_t shards, const std::function<void(int, Tensor&, FitOptions&)>& make) {
  return run_threads(
      2,
      [&](ProcessGroup& group) -> std::string {
        Sequential net = small_net();
        SGD optimizer(net.parameters(), {.lr = 0.1});
        Trainer trainer(net, optimizer, testing_train::loss_of_labels(),
                        {.epochs = 5, .group = &group, .virtual_shards = shards});
        ArrayDataset data = two_classes(16);
        FitOptions options;
        make(group.rank(), data.features, options);
        Loader loader(data, loader_of(&group, 8, shards));
        try {
          trainer.fit(loader, options);
        } catch (const Error& error) {
          return error.what();
        } catch (const std::exception& error) {
          return std::string("other: ") + error.what();
        }
        return "nothing";
      },
      patient);
}

TEST(Ranks, ALossThatIsNotFiniteOnOneEndsAll) {
  for (const std::int64_t shards : {0, 4}) {
    const auto said = troubles(shards, [](int, Tensor& features, FitOptions&) {
      features.write<float>()[2 * 14] = std::numeric_limits<float>::quiet_NaN();  // rank 1's, in the second batch
    });
    EXPECT_THAT(said[1], HasSubstr("step 2: the loss is nan; the batch itself has values that are not finite"));
    EXPECT_THAT(said[0], HasSubstr("rank 1 stopped training: [Trainer] step 2: the loss is nan"));
  }
}

TEST(Ranks, AnExceptionOfACallbackEndsAll) {
  const auto said = troubles(0, [](int rank, Tensor&, FitOptions& options) {
    options.epoch_end = [rank](const EpochMetrics& row) {
      if (rank == 0 && row.epoch == 2) throw std::runtime_error("disk full");
    };
  });
  EXPECT_EQ(said[0], "other: disk full");
  EXPECT_THAT(said[1], HasSubstr("rank 0 stopped training: disk full"));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Ranks, RefuseLoadersOfOthers) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const LossFunction& loss = testing_train::loss_of_labels();
  const auto with = [&](std::int64_t shards, const LoaderOptions& options) {
    return refusal([&] {
      Trainer trainer(net, optimizer, loss, {.epochs = 1, .virtual_shards = shards});
      Loader loader(two_classes(12), options);
      trainer.fit(loader);
    });
  };
  EXPECT_THAT(with(0, {.batch = 4, .rank = 1, .world_size = 2}),
              HasSubstr("the loader is of rank 1 of 2 with 0 shards"));
  EXPECT_THAT(with(4, {.batch = 4, .shards = 3}), HasSubstr("rank 0 of 1 with 4 virtual shards"));
  EXPECT_THAT(with(0, {.batch = 4, .shards = 3}), HasSubstr("with 3 shards"));
  EXPECT_EQ(with(4, {.batch = 4, .shards = 4}), "nothing was thrown");
  EXPECT_EQ(with(4, {.batch = 4}), "nothing was thrown");
  EXPECT_THAT(refusal([&] { Trainer(net, optimizer, loss, {.virtual_shards = -1}); }), HasSubstr("virtual_shards -1"));
  EXPECT_THAT(refusal([&] { Loader(two_classes(12), {.world_size = 3, .shards = 2}); }),
              HasSubstr("2 shards for 3 ranks"));
  EXPECT_THAT(refusal([&] { Loader(two_classes(12), {.uneven = Uneven::pad, .shards = 2}); }), HasSubstr("spread"));
}

TEST(Ranks, RefuseAnOptimizerOfOtherParameters) {
  Sequential net = small_net(), other = small_net();
  SGD optimizer(other.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, testing_train::loss_of_labels(), {.epochs = 1, .virtual_shards = 2});
  Loader loader(two_classes(12), {.batch = 4});
  EXPECT_THAT(refusal([&] { trainer.fit(loader); }), HasSubstr("is not the model's"));
}

TEST(Ranks, StatesSayHowManyThereWere) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const auto trainer = [&](std::int64_t shards) {
    return Trainer(net, optimizer, testing_train::loss_of_labels(), {.epochs = 1, .virtual_shards = shards});
  };
  Loader loader(two_classes(12), {.batch = 4});
  StateTree state = trainer(4).state(loader);
  EXPECT_THAT(refusal([&] { trainer(2).load(state, loader); }),
              HasSubstr("with virtual_shards 4, and this trainer has 2"));
  EXPECT_EQ(refusal([&] { trainer(4).load(state, loader); }), "nothing was thrown");
  std::string said;
  set_log_sink([&said](LogLevel, std::string_view message) { said += message; });
  state["trainer"]["ranks"] = 3;
  trainer(4).load(state, loader);
  EXPECT_EQ(said, "");  // the bits are the same
  state["trainer"]["virtual_shards"] = 0;
  trainer(0).load(state, loader);
  set_log_sink({});
  EXPECT_THAT(said, HasSubstr("saved on 3 ranks, and this run has 1"));
}

TEST(Loader, GivesARankTheRowsOfItsShards) {
  // 11 rows in 4 shards: 3, 3, 3, 2; the last batch of 3 rows leaves the last shard empty.
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::int64_t> seen;
  std::vector<float> numbers(14);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const Tensor rows = Tensor::from<float>(numbers, {14});
  for (const std::int32_t rank : {0, 1, 2}) {
    Loader loader(rows, rows, {.batch = 11, .rank = rank, .world_size = 3, .shards = 4});
    sizes.emplace_back();
    for (const Batch& batch : loader) {
      sizes.back().push_back(batch.features.shape()[0]);
      for (const double v : batch.features.to_vector()) seen.push_back(static_cast<std::int64_t>(v));
    }
  }
  EXPECT_EQ(sizes, (std::vector<std::vector<std::int64_t>>{{6, 2}, {3, 1}, {2, 0}}));
  std::ranges::sort(seen);
  for (std::size_t i = 0; i < 14; ++i) EXPECT_EQ(seen.at(i), static_cast<std::int64_t>(i));
}

}  // namespace
}  // namespace everyo
