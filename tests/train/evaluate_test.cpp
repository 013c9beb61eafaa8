#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "everyo/ops.h"
#include "everyo/parallel.h"
#include "runs.h"

// An evaluation over ranks has the bits of one rank's, whatever each of them has to evaluate.
namespace everyo {
namespace {

using ::testing::Each;
using testing_train::two_classes;

constexpr std::int64_t ignored = -100;
const SpawnOptions patient{.timeout = Timeout(60)};
using Worker = std::function<std::string(ProcessGroup&)>;

struct Held {
  std::string name{};
  std::int64_t rows = 50, batch = 8;
  std::int64_t every = 0;  // row's label is ignored; 0: none
  DType precision = float32;
  std::int64_t shards = 0;
  Uneven uneven = Uneven::spread;  // of the rows that are trained on
  bool wide = false;               // losses in float64, whose sum depends on its order
};

void PrintTo(const Held& held, std::ostream* out) { *out << held.name; }

TargetCount count_of(const Held& held) {
  return {.ignore_index = held.every > 0 ? std::optional<std::int64_t>(ignored) : std::nullopt};
}
LossFunction loss_of(const Held& held) {
  return [ignore = count_of(held).ignore_index, wide = held.wide](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(wide ? cast(logits, float64) : logits, labels, {.ignore_index = ignore});
  };
}
ArrayDataset held_out(const Held& held) {
  ArrayDataset data = two_classes(held.rows);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(held.rows));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = held.every > 0 && (i + 1) % static_cast<std::size_t>(held.every) == 0
                    ? ignored
                    : static_cast<std::int64_t>(i % 2);
  labels.front() = 1;  // at least one row is wrong
  return {data.features, Tensor::from<std::int64_t>(labels, {held.rows})};
}
// Dropout and batch norm: what a mode that is forgotten on a rank would show in.
Sequential net_of() {
  return Sequential{Linear(2, 16, {.seed = 3}), BatchNorm1D(16), ReLU(), Dropout(0.5), Linear(16, 2, {.seed = 4})};
}

std::string text_of(const Evaluation& e) { return fmt::format("{:a} {:a} {}", e.loss, e.accuracy, e.samples); }

class OneEvaluation : public ::testing::TestWithParam<Held> {};

TEST_P(OneEvaluation, OnAnyNumberOfRanks) {
  const Held& held = GetParam();
  const ArrayDataset data = held_out(held);
  const TrainConfig config{
      .epochs = 2, .count = count_of(held), .precision = held.precision, .virtual_shards = held.shards};
  std::string right;
  {
    Sequential net = net_of();
    SGD optimizer(net.parameters(), {.lr = 0.1});
    const Trainer alone(net, optimizer, loss_of(held), config);
    const Evaluation found = alone.evaluate(data, held.batch);
    right = text_of(found);
    EXPECT_EQ(found.samples, held.rows);
    if (held.every != 1) {
      EXPECT_GT(found.loss, 0);
      EXPECT_LT(found.accuracy, 1);
    }
  }
  const Worker worker = [&](ProcessGroup& group) {
    Sequential net = net_of();
    SGD optimizer(net.parameters(), {.lr = 0.1});
    TrainConfig with = config;
    with.group = &group;
    Trainer trainer(net, optimizer, loss_of(held), with);
    std::string text = text_of(trainer.evaluate(data, held.batch));
    // And after each epoch of a training whose own rows are shared unevenly.
    Loader loader(two_classes(35), {.batch = 12,
                                    .rank = group.rank(),
                                    .world_size = group.world_size(),
                                    .uneven = held.uneven,
                                    .shards = held.shards});
    std::string validated, wanted;
    const auto alone = [&] {
      const std::unique_ptr<ProcessGroup> one = single_process_group();
      TrainConfig without = config;
      without.group = one.get();
      return text_of(Trainer(net, optimizer, loss_of(held), without).evaluate(data));
    };
    trainer.fit(loader, {.epoch_end =
                             [&](const EpochMetrics& row) {
                               validated += text_of(row.validation.value()) + ';';
                               wanted += alone() + ';';
                             },
                         .validation = &data});
    return text + (validated == wanted ? " and the epochs'" : " but " + validated + " is not " + wanted);
  };
  for (const int ranks : {2, 3}) {
    EXPECT_THAT(run_threads(ranks, worker, patient), Each(right + " and the epochs'")) << ranks << " threads";
    EXPECT_THAT(run_processes(ranks, worker, patient), Each(right + " and the epochs'")) << ranks << " processes";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Evaluate, OneEvaluation,
    ::testing::Values(Held{.name = "even", .rows = 48}, Held{.name = "a_last_batch_of_two"},
                      Held{.name = "fewer_batches_than_ranks", .rows = 5},
                      Held{.name = "one_row", .rows = 1, .batch = 1}, Held{.name = "padded", .uneven = Uneven::pad},
                      Held{.name = "dropped", .uneven = Uneven::drop}, Held{.name = "every_third_ignored", .every = 3},
                      Held{.name = "nothing_counts", .rows = 9, .every = 1},
                      Held{.name = "in_order", .rows = 500, .batch = 4, .wide = true},
                      Held{.name = "float16", .precision = float16}, Held{.name = "bfloat16", .precision = bfloat16},
                      Held{.name = "virtual_shards", .shards = 4}),
    [](const auto& each) { return each.param.name; });

// The rows that a padded batch repeats are not evaluated twice.
TEST(Evaluate, LeavesPaddingOutOnEveryRank) {
  const ArrayDataset data = held_out({.rows = 13});
  std::vector<ArrayDataset> parts;  // of ranks that share one batch of 13 rows: 5 each, of which two repeat
  for (const std::int32_t rank : {0, 1, 2}) {
    Loader loader(data, {.batch = 13, .rank = rank, .world_size = 3, .uneven = Uneven::pad});
    parts.emplace_back(*loader.next());
  }
  EXPECT_EQ(parts[0].size() + parts[1].size() + parts[2].size(), 13);
  const auto evaluated = [&](ProcessGroup* group) {
    Sequential net = net_of();
    SGD optimizer(net.parameters(), {.lr = 0.1});
    const Trainer trainer(net, optimizer, loss_of({}), {.group = group});
    std::string text;
    for (const ArrayDataset& part : parts) text += text_of(trainer.evaluate(part, 2)) + ' ';
    return text;
  };
  const std::string right = evaluated(nullptr);
  const Worker worker = [&](ProcessGroup& group) { return evaluated(&group); };
  for (const int ranks : {2, 3}) {
    EXPECT_THAT(run_threads(ranks, worker, patient), Each(right));
    EXPECT_THAT(run_processes(ranks, worker, patient), Each(right));
  }
}

}  // namespace
}  // namespace everyo
