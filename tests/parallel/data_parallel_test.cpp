#include "everyo/data_parallel.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/precision.h"
#include "parallel/ranks.h"

// Gradients over ranks are those of one process over all samples.
namespace everyo {
namespace {

using testing_parallel::drawn, testing_parallel::require, testing_parallel::World;

Sequential perceptron(std::uint64_t seed = 0) {
  return Sequential(Linear(8, 16, {.seed = seed}), Tanh(), Linear(16, 1, {.seed = seed + 1}));
}

std::vector<std::vector<double>> gradients_of(Sequential& net) {
  std::vector<std::vector<double>> all;
  for (const Tensor& p : net.parameters())
    all.push_back(p.grad().defined() ? p.grad().to_vector() : std::vector<double>());
  return all;
}
std::vector<std::vector<double>> values_of(Sequential& net) {
  std::vector<std::vector<double>> all;
  for (const auto& [name, t] : net.state_dict()) all.push_back(t.to_vector());
  return all;
}
double largest_difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].size() != b[i].size()) return 1e9;
    for (std::size_t j = 0; j < a[i].size(); ++j) largest = std::max(largest, std::abs(a[i][j] - b[i][j]));
  }
  return largest;
}

void require_close(double difference, double bound, const std::string& what) {
  require(difference <= bound, what + ": differs by " + std::to_string(difference * 1e9) + "e-9");
}

// The same bytes on all ranks.
void require_equal_on_all(ProcessGroup& group, const std::vector<std::vector<double>>& values) {
  for (const auto& v : values) {
    std::vector<double> first = v;
    group.broadcast(std::span(first), 0);
    require(first == v, "ranks differ");
  }
}

// The mean squared error of rows [first, end).
Tensor loss_of(Sequential& net, const Tensor& x, const Tensor& y, std::int64_t first, std::int64_t end) {
  const auto rows = [&](const Tensor& t) { return slice(t, {{first, end}}); };
  return mse_loss(net(rows(x)), rows(y));
}

class DataParallelism : public testing_parallel::OnWorlds {};

// Gradients here are below 2: one process and several round their sums otherwise, by two units of the last place.
constexpr double rounding = 2.4e-7;

TEST_P(DataParallelism, D1_D2_AveragesOverEvenAndUnevenShards) {
  on_all([](ProcessGroup& group) {
    for (const std::int64_t rows : {64, 65, 7}) {
      const Tensor x = drawn({rows, 8}, 1), y = drawn({rows, 1}, 2);
      Sequential whole = perceptron(), part = perceptron();
      loss_of(whole, x, y, 0, rows).backward();
      const Block own = shard_indices(rows, group.rank(), group.world_size(), false);
      loss_of(part, x, y, own.first, own.end).backward();
      const double total = average_gradients(part.parameters(), group, {.weight = static_cast<double>(own.size())});
      require(total == static_cast<double>(rows), "total weight");
      require_close(largest_difference(gradients_of(whole), gradients_of(part)), rounding, "gradient");
      require_equal_on_all(group, gradients_of(part));
    }
  });
}

TEST_P(DataParallelism, D2_TheUnweightedMeanIsAnotherGradient) {
  on_all([](ProcessGroup& group) {
    if (65 % group.world_size() == 0) return;
    const Tensor x = drawn({65, 8}, 1), y = drawn({65, 1}, 2);
    Sequential whole = perceptron(), part = perceptron();
    loss_of(whole, x, y, 0, 65).backward();
    const Block own = shard_indices(65, group.rank(), group.world_size(), false);
    loss_of(part, x, y, own.first, own.end).backward();
    average_gradients(part.parameters(), group);
    require(largest_difference(gradients_of(whole), gradients_of(part)) > 100 * rounding, "weights change nothing");
  });
}

TEST_P(DataParallelism, D19_ASumGivesOneOverTheWorldOfIt) {
  on_all([](ProcessGroup& group) {
    const int n = group.world_size();
    const Tensor w = Tensor::ones({1});
    w.set_requires_grad();
    for (int sample = group.rank() + 1; sample <= 2 * n; sample += n)
      sum(power(w * static_cast<double>(sample), 2)).backward();
    average_gradients({&w, 1}, group);
    double all = 0;
    for (int sample = 1; sample <= 2 * n; ++sample) all += 2.0 * sample * sample;
    require(std::abs(w.grad().item() * n - all) < 1e-4, "a sum is divided by the world");
  });
}

TEST_P(DataParallelism, TrainsAsOneProcess) {
  on_all([](ProcessGroup& group) {
    Sequential whole = perceptron(),
               part = perceptron(static_cast<std::uint64_t>(group.rank()));  // D06: rank 0's count
    DataParallel parallel(part, group, {.bucket_bytes = 256});
    require(largest_difference(values_of(whole), values_of(part)) == 0, "rank 0's weights");
    Adam one(whole.parameters(), {.lr = 1e-2}), other(part.parameters(), {.lr = 1e-2});
    for (std::uint64_t step = 0; step < 10; ++step) {
      const std::int64_t rows = 30 + static_cast<std::int64_t>(step);
      const Tensor x = drawn({rows, 8}, 10 + step), y = drawn({rows, 1}, 50 + step);
      const Block own = shard_indices(rows, group.rank(), group.world_size(), false);
      one.zero_grad();
      other.zero_grad();
      loss_of(whole, x, y, 0, rows).backward();
      parallel.set_weight(static_cast<double>(own.size()));
      loss_of(part, x, y, own.first, own.end).backward();
      require_close(largest_difference(gradients_of(whole), gradients_of(part)), 1e-6, "gradient");
      clip_grad_norm(whole.parameters(), 0.05);
      clip_grad_norm(part.parameters(), 0.05);
      one.step();
      other.step();
      require(parallel.times().bytes > 0 && parallel.total_weight() == static_cast<double>(rows), "report");
    }
    // Adam divides by the gradient's own size, so its first steps carry a rounding on at lr times its relative size.
    require_close(largest_difference(values_of(whole), values_of(part)), 1e-5, "weights");
    require_equal_on_all(group, values_of(part));
  });
}

TEST_P(DataParallelism, AddsUpWithoutExchangeInNoSync) {
  on_all([](ProcessGroup& group) {
    const std::int64_t n = group.world_size();
    const Tensor x = drawn({8 * n, 8}, 1), y = drawn({8 * n, 1}, 2);
    Sequential whole = perceptron(), part = perceptron();
    loss_of(whole, x, y, 0, 8 * n).backward();
    DataParallel parallel(part, group);
    const std::int64_t first = 8 * group.rank();
    {
      const auto apart = parallel.no_sync();
      (loss_of(part, x, y, first, first + 3) * (3 / 8.)).backward();
    }
    (loss_of(part, x, y, first + 3, first + 8) * (5 / 8.)).backward();
    require_close(largest_difference(gradients_of(whole), gradients_of(part)), 2 * rounding, "gradient");
  });
}

TEST_P(DataParallelism, D01_UnusedParametersNeedNoFlag) {
  on_all([](ProcessGroup& group) {
    const bool last = group.rank() == group.world_size() - 1;
    Sequential net(Linear(4, 4, {.seed = 1}), Linear(4, 4, {.seed = 2}), Linear(4, 4, {.seed = 3}));
    DataParallel parallel(net, group, {.bucket_bytes = 64});
    const auto p = net.parameters();
    const Tensor x = drawn({2, 4}, 4);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      Tensor y = linear(x, p[0], p[1]);
      if (last) y = linear(y, p[2], p[3]);  // layer 1 on one rank, layer 2 on none
      mean(y).backward();
      require(p[0].grad().defined() && p[2].grad().defined() && !p[4].grad().defined(), "who has a gradient");
      require_equal_on_all(group, {p[0].grad().to_vector(), p[2].grad().to_vector()});
    }
  });
}

// What its gradient was in the step before counts no more.
TEST_P(DataParallelism, D01_AParameterMayBeUnusedLaterOnOneRank) {
  on_all([](ProcessGroup& group) {
    const int n = group.world_size(), last = n - 1;
    for (const bool while_backward_runs : {true, false}) {
      Sequential net(Linear(1, 1, {.seed = 0}), Linear(1, 1, {.seed = 1}));
      std::optional<DataParallel> parallel;
      if (while_backward_runs) parallel.emplace(net, group);
      const auto p = net.parameters();
      for (int step = 0; step < 2; ++step) {
        net.zero_grad();
        Tensor loss = sum(p[0] * 2.0);
        if (step == 0 || group.rank() != last) loss = loss + sum(p[2] * 8.0);
        loss.backward();
        if (!parallel) average_gradients(p, group);
        const double have = step == 0 ? n : n - 1;
        require(p[0].grad().item() == 2, "used by all");
        require(n == 1 && step == 1 ? !p[2].grad().defined() : std::abs(p[2].grad().item() - 8 * have / n) < 1e-6,
                "the mean counts zero for the last rank");
      }
    }
  });
}

TEST_P(DataParallelism, WithoutAnyWeightNothingChanges) {
  on_all([](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    if (group.rank() == 0) sum(net.weight * 2.0).backward();
    require(average_gradients(net.parameters(), group, {.weight = 0}) == 0, "total");
    require(!net.bias->grad().defined(), "no gradient");
    require(net.weight.grad().defined() == (group.rank() == 0), "a gradient where it was");
    if (group.rank() == 0) require(net.weight.grad().item() == 2, "as it was");
  });
}

TEST_P(DataParallelism, BuffersOfWholeNumbersBecomeTheLargest) {
  on_all([](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    const Tensor seen = Tensor::empty({int64, {2}});
    DataParallel parallel(
        net.named_parameters(),
        [&] {
          return StateDict{{"seen", seen}};
        },
        group);
    seen.write<std::int64_t>()[0] = 10 + group.rank();
    seen.write<std::int64_t>()[1] = -group.rank();
    sum(net(Tensor::ones({1, 1}))).backward();
    require(seen.to_vector() == std::vector<double>{10.0 + group.world_size() - 1, 0}, "after a step");
    seen.write<std::int64_t>()[0] = -5 - group.rank();
    parallel.sync_buffers();
    require(seen.to_vector() == std::vector<double>{-5, 0}, "when asked");
  });
}

TEST_P(DataParallelism, BuffersHaveTheWeightsOfTheGradients) {
  on_all([](ProcessGroup& group) {
    const int n = group.world_size();
    Linear net(1, 1, {.seed = 0});
    const Tensor mean = Tensor::full({1}, 0);
    DataParallel parallel(
        net.named_parameters(),
        [&] {
          return StateDict{{"mean", mean}};
        },
        group);
    mean.write<float>()[0] = static_cast<float>(group.rank());
    parallel.set_weight(group.rank() == 0 ? 3 : 1);
    sum(net(Tensor::ones({1, 1}))).backward();
    require(std::abs(mean.item() - n * (n - 1) / 2. / (n + 2)) < 1e-6, "weighted in a step");
    mean.write<float>()[0] = static_cast<float>(group.rank());
    parallel.sync_buffers();
    require(std::abs(mean.item() - (n - 1) / 2.) < 1e-6, "not when asked");
  });
}

TEST_P(DataParallelism, D02_D03_ARankOutOfDataTakesPart) {
  on_all([](ProcessGroup& group) {
    const std::int64_t n = group.world_size(), rows = 2 * n + 1;  // batches of one; rank 0 has one more
    const Tensor x = drawn({rows, 8}, 1), y = drawn({rows, 1}, 2);
    Sequential whole = perceptron(), part = perceptron();
    SGD one(whole.parameters(), {.lr = 0.1}), other(part.parameters(), {.lr = 0.1});
    DataParallel parallel(part, group);
    for (std::int64_t step = 0; step < 3; ++step) {
      one.zero_grad();
      other.zero_grad();
      const std::int64_t first = step * n, end = std::min(rows, first + n), own = first + group.rank();
      loss_of(whole, x, y, first, end).backward();
      if (own < end) {
        parallel.set_weight(1);
        loss_of(part, x, y, own, own + 1).backward();
      } else {
        parallel.take_part();
      }
      one.step();
      other.step();
    }
    require_close(largest_difference(values_of(whole), values_of(part)), 1e-6, "weights");
    require_equal_on_all(group, values_of(part));
  });
}

TEST_P(DataParallelism, D04_D05_BuffersAreTheMeanOfTheRanks) {
  on_all([](ProcessGroup& group) {
    Sequential net(Linear(4, 3, {.seed = 1}), BatchNorm1D(3));
    DataParallel parallel(net, group);
    const Tensor x = drawn({6, 4}, 10 + static_cast<std::uint64_t>(group.rank()));
    Sequential alone(Linear(4, 3, {.seed = 1}), BatchNorm1D(3));
    (mean(alone(x)) + mean(alone(x + 1.0))).backward();
    (mean(power(net(x), 2)) + mean(net(x + 1.0))).backward();  // two forwards before one backward
    for (std::size_t b = 0; b < 2; ++b) {
      const Tensor own = alone.named_buffers()[b].second.copy();
      group.all_reduce(own.data<float>(), ReduceOp::mean);
      require(own.to_vector() == net.named_buffers()[b].second.to_vector(), "mean of the ranks' statistics");
    }
  });
}

TEST_P(DataParallelism, AnOverflowOnOneRankSkipsTheStepOnAll) {
  on_all([](ProcessGroup& group) {
    Sequential net = perceptron();
    DataParallel parallel(net, group);
    SGD optimizer(net.parameters(), {.lr = 0.1});
    AgreementOver ranks(group);
    GradScaler scaler({.init_scale = 1024, .ranks = &ranks});
    const auto before = values_of(net);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const Tensor x = drawn({4, 8}, 3), y = drawn({4, 1}, 4);
      if (step == 1 && group.rank() == group.world_size() - 1) x.write<float>()[0] = INFINITY;
      Tensor loss;
      {
        const Autocast low(float16);
        loss = mse_loss(net(x), y);
      }
      scaler.backward(loss);
      require(scaler.step(optimizer) == (step != 1), "step");
      scaler.update();
    }
    require(scaler.scale() == 512 && scaler.applied_steps() == 2, "scale");  // A10
    require(values_of(net) != before, "trained");
    require_equal_on_all(group, values_of(net));
  });
}

TEST_P(DataParallelism, D06_SaysWhichParameterDiffers) {
  const World& world = GetParam();
  if (world.ranks == 1) return;
  const auto message = [&](const std::function<void(ProcessGroup&)>& body) {
    try {
      world.run(
          world.ranks,
          [&](ProcessGroup& group) {
            body(group);
            return std::string();
          },
          SpawnOptions{});
    } catch (const DistributedError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message([](ProcessGroup& group) {
                Sequential net = perceptron(static_cast<std::uint64_t>(group.rank()));
                const DataParallel parallel(net, group, {.broadcast_weights = false});
              }),
              ::testing::HasSubstr("'0.weight' has another value on rank 1 than on rank 0"));
  EXPECT_THAT(message([](ProcessGroup& group) {
                Sequential net(Linear(4, group.rank() == 1 ? 5 : 4), Linear(4, 4));
                const DataParallel parallel(net, group);
              }),
              ::testing::HasSubstr("'0.weight' has another name, shape or dtype on rank 1"));
  EXPECT_THAT(message([](ProcessGroup& group) {
                Sequential net(Linear(4, 4));
                if (group.rank() == 0) net.push_back(Linear(4, 4));
                const DataParallel parallel(net, group);
              }),
              ::testing::HasSubstr("one rank's model has 2 parameters and buffers, another's 4"));
}

INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelism,
                         ::testing::Values(World{"one", run_threads, 1}, World{"threads", run_threads, 2},
                                           World{"threads", run_threads, 3}, World{"processes", run_processes, 2},
                                           World{"processes", run_processes, 4}),
                         [](const auto& world) { return name_of(world.param); });

TEST(ShardIndices, AreBlocksOfEqualSizeOrOneMore) {
  EXPECT_EQ(shard_indices(10, 1, 3), (Block{3, 6}));
  EXPECT_EQ(shard_indices(10, 0, 3, false), (Block{0, 4}));
  EXPECT_EQ(shard_indices(10, 1, 3, false), (Block{4, 7}));
  EXPECT_EQ(shard_indices(10, 2, 3, false), (Block{7, 10}));
  EXPECT_EQ(shard_indices(10, 0, 1), (Block{0, 10}));
  for (const auto& [count, rank, world, word] :
       {std::tuple(10, 3, 3, "rank must be"), std::tuple(10, -1, 3, "rank must be"), std::tuple(10, 0, 0, "at least 1"),
        std::tuple(2, 0, 3, "cannot be split")}) {
    try {
      shard_indices(count, rank, world);
      ADD_FAILURE() << word;
    } catch (const ValueError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
      EXPECT_EQ(error.kind(), ErrorKind::distributed);
    }
  }
}

}  // namespace
}  // namespace everyo
