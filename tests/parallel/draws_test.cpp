#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "everyo/accumulation.h"
#include "everyo/autograd.h"
#include "everyo/context.h"
#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/train.h"
#include "everyo/virtual_shards.h"
#include "ranks.h"

// What ranks draw: each its own masks, without being told to, and a Trainer and virtual shards what they always did.
namespace everyo {
namespace {

using ::testing::Each;
using namespace testing_parallel;

std::string text_of(const Tensor& t) { return fmt::format("{}", fmt::join(t.to_vector(), " ")); }
std::string mask(Dropout& layer) { return text_of(layer(Tensor::ones({1, 64}))); }

TEST(Draws, OfALoopOfOnesOwnAreEachRanksOwn) {
  // Two steps of two micro-batches each: no two masks are one, on any rank.
  const auto worker = [](ProcessGroup& group) {
    Sequential net(Dropout(0.5), Linear(64, 1, {.seed = 1}));
    DataParallel parallel(net, group);
    SGD optimizer(net.parameters(), {.lr = 0.1});
    Dropout layer(0.5);
    std::string masks;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Batch batch{Tensor::ones({2, 64}), Tensor::ones({2, 1})};
      const MicroBatches parts(batch, {.accumulate = 2});
      std::size_t left = parts.size();
      for (const MicroBatch& part : parts) {
        std::optional<DataParallel::NoSync> hold;
        if (--left > 0) hold.emplace(parallel);
        masks += mask(layer) + ';';
        (mse_loss(net(part.features), part.targets) * part.weight).backward();
      }
      optimizer.step();
    }
    return masks;
  };
  const std::unique_ptr<ProcessGroup> alone = single_process_group();
  const Scoped<&Context::step> first(0);
  const std::string of_one = worker(*alone);
  context().step = 0;
  for (const Runner run : runners) {
    const std::vector<std::string> all = run(3, worker, {.timeout = Timeout(60)});
    EXPECT_EQ(all[0], of_one);  // rank 0 draws what one process does
    std::set<std::string> different;
    for (const std::string& masks : all)
      for (std::size_t at = 0; at < masks.size(); at = masks.find(';', at) + 1)
        different.insert(masks.substr(at, masks.find(';', at) - at));
    EXPECT_EQ(different.size(), 3 * 2 * 2);
  }
}

TEST(Draws, AreThoseOfTheRunInAPartOfIt) {
  const auto masks = run_threads(4, [](ProcessGroup& group) {
    const auto part = group.split(group.rank() / 2);  // each has a rank 0
    Dropout layer(0.5);
    return mask(layer);
  });
  EXPECT_EQ(std::set<std::string>(masks.begin(), masks.end()).size(), 4);
}

TEST(Draws, AreOneWhereTheRankIsSaidToBe) {
  const auto masks = run_threads(3, [](ProcessGroup&) {
    const Scoped<&Context::rank> same(0);
    Dropout layer(0.5);
    return mask(layer);
  });
  EXPECT_THAT(masks, Each(masks[0]));
}

TEST(Draws, LeaveTheirThreadAsItWas) {
  run_threads(2, [](ProcessGroup& outer) {
    run_threads(2, [](ProcessGroup& inner) {
      require(context().rank == inner.rank(), "of the inner run");
      return std::string();
    });
    require(context().rank == outer.rank(), "of the outer run");
    return std::string();
  });
  EXPECT_EQ(context().rank, 0);
}

TEST(Draws, OfVirtualShardsAndOfATrainerDoNotDependOnTheRank) {
  const auto of_shards = [](ProcessGroup& group) {
    Sequential net(Dropout(0.5), Linear(64, 1, {.seed = 1}));
    VirtualShards virtual_shards(net, group, 4);
    virtual_shards.run([&](std::int64_t) { mse_loss(net(Tensor::ones({1, 64})), Tensor::ones({1, 1})).backward(); });
    return text_of(net.parameters()[0].grad());
  };
  // A Trainer that has no group is a run of its own, wherever it runs.
  const auto of_trainer = [](ProcessGroup&) {
    Sequential net(Dropout(0.5), Linear(64, 1, {.seed = 1}));
    SGD optimizer(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, optimizer, MSELoss(), {.epochs = 2, .accumulate = 2});
    Loader loader(Tensor::ones({8, 64}), Tensor::ones({8, 1}), {.batch = 4});
    trainer.fit(loader);
    return text_of(net.parameters()[0]);
  };
  const std::unique_ptr<ProcessGroup> alone = single_process_group();
  EXPECT_THAT(run_threads(3, of_shards), Each(of_shards(*alone)));
  EXPECT_THAT(run_processes(3, of_trainer), Each(of_trainer(*alone)));
}

}  // namespace
}  // namespace everyo
