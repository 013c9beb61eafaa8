#include "everyo/virtual_shards.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "everyo/io.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/precision.h"
#include "parallel/ranks.h"
#include "parallel/shard_tree.h"

// One digest, whoever works on the shards.
namespace everyo {
namespace {

using testing_parallel::drawn;

struct Case {
  const char* name;
  std::int64_t shards;
  DType precision = float32;
  std::int64_t rows = 37;
};

// Batch norm, dropout, an uneven batch, Adam: everything that could depend on who does what.
std::string train(ProcessGroup& group, const Case& c) {
  Sequential net(Linear(6, 16, {.seed = static_cast<std::uint64_t>(group.rank())}), BatchNorm1D(16), ReLU(),
                 Dropout(0.3), Linear(16, 3, {.seed = 9}));
  VirtualShards shards(net, group, c.shards);
  Adam optimizer(net.parameters(), {.lr = 1e-2});
  AgreementOver ranks(group);
  GradScaler scaler({.init_scale = 1024, .enabled = c.precision == float16, .ranks = &ranks});
  const Scoped<&Context::seed> seed(5);
  for (std::uint64_t step = 0; step < 6; ++step) {
    const Scoped<&Context::step> step_key(step);
    const Tensor x = drawn({c.rows, 6}, step), y = drawn({c.rows, 3}, 100 + step);
    optimizer.zero_grad();
    shards.run([&](std::int64_t shard) {
      const Block rows = shard_indices(c.rows, static_cast<int>(shard), static_cast<int>(c.shards), false);
      const auto part = [&](const Tensor& t) { return slice(t, {{rows.first, rows.end}}); };
      Tensor loss;
      {
        const Autocast off(false);
        const auto forward = [&] { loss = mse_loss(net(part(x)), part(y)); };
        if (is_half(c.precision)) {
          const Autocast low(c.precision);
          forward();
        } else {
          forward();
        }
      }
      scaler.backward(loss * (static_cast<double>(rows.size()) / static_cast<double>(c.rows)));
    });
    scaler.step(optimizer);
    scaler.update();
  }
  return digest(net.state_dict());
}

class SameBits : public ::testing::TestWithParam<Case> {};

TEST_P(SameBits, OnAnyNumberOfThreadsAndRanks) {
  const Case& c = GetParam();
  std::string right;
  {
    const ThreadLimit one(1);
    right = train(*single_process_group(), c);
  }
  EXPECT_EQ(right.size(), 64u);
  {
    const ThreadLimit four(4);
    EXPECT_EQ(train(*single_process_group(), c), right) << "4 threads";
  }
  const auto worker = [&](ProcessGroup& group) { return train(group, c); };
  for (const int ranks : {2, 3, 4}) {
    if (ranks > c.shards) continue;
    EXPECT_THAT(run_processes(ranks, worker, {.timeout = Timeout(60)}), ::testing::Each(right))
        << ranks << " processes";
    EXPECT_THAT(run_threads(ranks, worker, {.timeout = Timeout(60)}), ::testing::Each(right)) << ranks << " threads";
    EXPECT_THAT(run_processes(ranks, worker, {.timeout = Timeout(60), .threads = 2}), ::testing::Each(right))
        << ranks << " processes of 2 threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SameBits,
                         ::testing::Values(Case{"one", 1}, Case{"four", 4}, Case{"seven", 7},
                                           Case{"float16", 4, float16}, Case{"bfloat16", 5, bfloat16}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(VirtualShards, IsThePlainGradientButForRounding) {
  Sequential plain(Linear(6, 16, {.seed = 1}), Tanh(), Linear(16, 3, {.seed = 2}));
  Sequential cut(Linear(6, 16, {.seed = 1}), Tanh(), Linear(16, 3, {.seed = 2}));
  const Tensor x = drawn({37, 6}, 1), y = drawn({37, 3}, 2);
  mse_loss(plain(x), y).backward();
  const auto group = single_process_group();
  VirtualShards shards(cut, *group, 8);
  shards.run([&](std::int64_t shard) {
    const Block rows = shard_indices(37, static_cast<int>(shard), 8, false);
    const auto part = [&](const Tensor& t) { return slice(t, {{rows.first, rows.end}}); };
    (mse_loss(cut(part(x)), part(y)) * (static_cast<double>(rows.size()) / 37)).backward();
  });
  for (std::size_t p = 0; p < 4; ++p) {
    const auto a = plain.parameters()[p].grad().to_vector(), b = cut.parameters()[p].grad().to_vector();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-7);  // D6's bound on the drift
  }
}

TEST(VirtualShards, SharesWhatEachShardSaid) {
  const auto results = run_threads(3, [](ProcessGroup& group) {
    Sequential net(Linear(2, 2));
    VirtualShards shards(net, group, 5);
    std::vector<double> values(5, -1);
    for (std::int64_t s = shards.own_shards().first; s < shards.own_shards().end; ++s)
      values[static_cast<std::size_t>(s)] = static_cast<double>(10 * s + 1);
    shards.share(values);
    std::string text;
    for (const double v : values) text += std::to_string(static_cast<int>(v)) + " ";
    return text;
  });
  EXPECT_THAT(results, ::testing::Each("1 11 21 31 41 "));
}

TEST(VirtualShards, AShardWithoutSamplesAddsNothing) {
  const auto group = single_process_group();
  Sequential net(Linear(2, 2, {.seed = 1}), BatchNorm1D(2));
  VirtualShards shards(net, *group, 3);
  const Tensor x = drawn({4, 2}, 1);
  shards.run([&](std::int64_t shard) {
    if (shard != 1) return;
    sum(net(x)).backward();
  });
  Sequential other(Linear(2, 2, {.seed = 1}), BatchNorm1D(2));
  sum(other(x)).backward();
  for (std::size_t p = 0; p < 4; ++p)
    EXPECT_EQ(net.parameters()[p].grad().to_vector(), other.parameters()[p].grad().to_vector());
  EXPECT_EQ(net.named_buffers()[0].second.to_vector(), other.named_buffers()[0].second.to_vector());
}

// Shards of the last rank alone have a gradient, multiplied by a loss scale; then none has one of `second`.
TEST(VirtualShards, OverwritesOldGradientsAndKeepsTheLossScale) {
  testing_parallel::on_both_transports(3, [](ProcessGroup& group) {
    using testing_parallel::require;
    Sequential net(Linear(1, 1, {.seed = 1}), Linear(1, 1, {.seed = 2}));
    const Tensor first = net.parameters()[0], second = net.parameters()[2];
    AgreementOver ranks(group);
    GradScaler scaler({.init_scale = 1024, .ranks = &ranks});
    VirtualShards shards(net, group, 7);
    for (int step = 0; step < 2; ++step) {
      shards.run([&](std::int64_t shard) {
        if (shard != 5) return;
        Tensor loss = sum(first * 3.0);
        if (step == 0) loss = loss + sum(second * 2.0);
        scaler.backward(loss);
      });
      require(first.grad().item() == 3 * 1024 && first.body()->leaf->grad.scale == 1024,
              "of this step, with its scale");
      require(step == 1 ? !second.grad().defined() : second.grad().item() == 2 * 1024, "of this step alone");
    }
  });
}

TEST(VirtualShards, RefusesFewerShardsThanRanksAndNumbersThatNobodyMeans) {
  Sequential net(Linear(2, 2));
  for (const std::int64_t shards : {std::int64_t{0}, std::int64_t{65537}, std::numeric_limits<std::int64_t>::max()})
    EXPECT_THROW(VirtualShards(net, *single_process_group(), shards), ValueError);
  EXPECT_EQ(VirtualShards(net, *single_process_group(), 65536).shards(), 65536);
  try {
    run_threads(3, [](ProcessGroup& group) {
      Sequential own(Linear(2, 2));
      VirtualShards(own, group, 2);
      return std::string();
    });
    ADD_FAILURE();
  } catch (const DistributedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("2 shards for 3 ranks"));
  }
}

TEST(ShardTree, OfAnyPartHasTheNodesOfTheWhole) {
  using parallel::nodes_above, parallel::nodes_within;
  const auto block = [](std::int64_t first, std::int64_t end) { return Block{first, end}; };
  EXPECT_EQ(nodes_within(7, {0, 7}), (std::vector{block(0, 7)}));
  EXPECT_EQ(nodes_within(8, {0, 4}), (std::vector{block(0, 4)}));
  EXPECT_EQ(nodes_within(8, {3, 6}), (std::vector{block(3, 4), block(4, 6)}));
  EXPECT_EQ(nodes_within(7, {3, 7}), (std::vector{block(3, 4), block(4, 7)}));
  EXPECT_EQ(nodes_above(7, 6), (std::vector{block(4, 7), block(0, 7)}));
  EXPECT_EQ(nodes_above(5, 4), (std::vector{block(0, 5)}));
  EXPECT_EQ(nodes_above(1, 0), std::vector<Block>());
}

}  // namespace
}  // namespace everyo
