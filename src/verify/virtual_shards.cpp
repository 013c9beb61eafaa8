#include "everyo/virtual_shards.h"

#include "everyo/context.h"
#include "everyo/io.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "verify/ranks.h"
#include "verify/topics.h"

// D6: with virtual shards the number of workers does not change a bit.
namespace everyo::verify_room {
namespace {

constexpr std::int64_t rows = 1021, features = 8, shard_count = 8;
constexpr int steps = 20;

/// Batch norm and dropout too, which see their shard. With `own_sums`, each rank first sums what it has itself.
std::string train(ProcessGroup& group, bool own_sums) {
  const Regression data(rows, features, 0.1);
  Sequential net(Linear(features, 64, {.seed = 0}), BatchNorm1D(64), Tanh(), Dropout(0.1), Linear(64, 1, {.seed = 2}));
  SGD optimizer(net.parameters(), {.lr = 0.05});
  VirtualShards shards(net, group, shard_count);
  const Scoped<&Context::seed> seed(1);
  const Scoped<&Context::step> first_step(0);
  const auto loss = [&](std::int64_t shard) {
    const Block own = shard_indices(rows, static_cast<int>(shard), shard_count, false);
    return data.loss(net, own.first, own.end) * (static_cast<double>(own.size()) / static_cast<double>(rows));
  };
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    if (own_sums) {
      const Block own = shards.own_shards();
      for (std::int64_t shard = own.first; shard < own.end; ++shard) loss(shard).backward();
      for (const Tensor& p : net.parameters()) group.all_reduce(p.grad().write<float>());
    } else {
      shards.run([&](std::int64_t shard) { loss(shard).backward(); });
    }
    optimizer.step();
  }
  return digest(net.state_dict());
}

std::vector<double> differing_digests(bool own_sums) {
  const auto alone = [&](int threads) {
    const ThreadLimit limit(threads);
    return train(*single_process_group(), own_sums);
  };
  const std::string right = alone(1);
  std::vector<double> found{alone(4) == right ? 0.0 : 1.0};
  const auto differs = [&](Ranks ranks, int count) {
    double worst = 0;
    for (const auto& rank : on_ranks(ranks, count, [&](ProcessGroup& group) {
           return std::vector{train(group, own_sums) == right ? 0.0 : 1.0};
         }))
      worst = std::max(worst, rank[0]);
    found.push_back(worst);
  };
  for (int count = 2; count <= 4; ++count) differs(Ranks::processes, count);
  differs(Ranks::threads, 3);
  return found;
}

}  // namespace

void add_virtual_shard_checks(Checks& checks, const Figures& figures) {
  checks.push_back(
      {.requirement = "D6",
       .what = "runs with 8 virtual shards whose weights or statistics are not those of 1 thread to the bit",
       .figure = figures.at("virtual_shards"),
       .measure = [](bool sabotaged) { return differing_digests(sabotaged); },
       .sabotage = "each rank sums its own shards first",
       .note = "with batch norm and dropout, over rows that the shards do not divide",
       .columns = {"4 threads", "2 processes", "3 processes", "4 processes", "3 thread ranks"}});
}

}  // namespace everyo::verify_room
