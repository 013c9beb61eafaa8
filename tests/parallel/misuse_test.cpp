#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <optional>

#include "everyo/autograd.h"
#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/virtual_shards.h"
#include "parallel/ranks.h"

// What users do that would give wrong gradients or read foreign memory, if it were not refused.
namespace everyo {
namespace {

using testing_parallel::on_both_transports, testing_parallel::require;

/// What it throws says so.
template <class E, class F>
void require_refused(const std::string& words, F&& call) {
  try {
    call();
  } catch (const E& error) {
    require(std::string_view(error.what()).find(words) != std::string_view::npos, error.what());
    return;
  }
  throw StateError("not refused: " + words);
}

Tensor row_of(ProcessGroup& group) { return Tensor::full({1, 1}, group.rank() == 0 ? 1 : 3); }

TEST(Misuse, OptionsThatDifferAreRefused) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(100, 100, {.seed = 0});
    const std::size_t bytes = group.rank() == 0 ? 1 : 1 << 20;
    require_refused<DistributedError>("bucket_bytes is 1 on rank 0 and 1048576 on rank 1",
                                      [&] { DataParallel(net, group, {.bucket_bytes = bytes}); });
    const BufferSync rule = group.rank() == 0 ? BufferSync::mean : BufferSync::none;
    require_refused<DistributedError>("buffers is", [&] { DataParallel(net, group, {.buffers = rule}); });
    require_refused<DistributedError>("broadcast_weights is",
                                      [&] { DataParallel(net, group, {.broadcast_weights = group.rank() == 0}); });
    if (group.rank() == 1) net.weight.tensor().set_requires_grad(false);
    require_refused<DistributedError>("'weight' has another name, shape or dtype", [&] { DataParallel(net, group); });
    require_refused<DistributedError>("'weight'", [&] { VirtualShards(net, group, 2); });
  });
}

TEST(Misuse, SharedMemoryIsOfOneSize) {
  on_both_transports(2, [](ProcessGroup& group) {
    require_refused<ShapeError>("rank 0 wants 10 bytes, rank 1 1000000",
                                [&] { static_cast<void>(group.shared_memory(group.rank() == 0 ? 10 : 1'000'000)); });
    require_refused<ShapeError>(
        "more than", [&] { static_cast<void>(group.shared_memory(std::numeric_limits<std::size_t>::max())); });
    const Ref<Storage> memory = group.shared_memory(10);
    require(memory->bytes() == 10, "size");
  });
}

TEST(Misuse, WeightsOfAMeanAreCheckedWhenTheyAreRead) {
  on_both_transports(2, [](ProcessGroup& group) {
    using Weights = ProcessGroup::Weights;
    float value[] = {1};
    const auto mean = [&](std::shared_ptr<const Weights> weights) {
      group.weighted_mean_async(std::as_writable_bytes(std::span(value)), float32, std::move(weights)).wait();
    };
    require_refused<ValueError>("0 weights for 2 ranks", [&] { mean(nullptr); });
    require_refused<ValueError>("1 weights for 2 ranks", [&] { mean(std::make_shared<Weights>(1, 1.0)); });
    for (const double bad : {-1.0, std::nan(""), 1e308, 5e-324})
      require_refused<ValueError>("the weight is", [&] { mean(std::make_shared<Weights>(2, bad)); });
    mean(std::make_shared<Weights>(2, 1e30));
    require(value[0] == 1, "mean");
  });
}

TEST(Misuse, AveragedParametersAreTheSameOnAllRanks) {
  on_both_transports(2, [](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    Parameter shaped = Parameter::of(Tensor::ones(first ? Shape{2, 3} : Shape{3, 2}));
    sum(shaped * 2.0).backward();
    const Tensor one[] = {shaped};
    require_refused<DistributedError>("other parameters", [&] { average_gradients(one, group); });

    Sequential net(Linear(2, 2, {.seed = 0}), Linear(2, 2, {.seed = 1}));
    sum(net(Tensor::ones({1, 2}))).backward();
    std::vector<Tensor> parameters = net.parameters();
    if (first) std::swap(parameters[0], parameters[2]);
    require_refused<DistributedError>("other parameters", [&] { average_gradients(parameters, group); });
    parameters.resize(first ? 4 : 3);
    require_refused<DistributedError>("other parameters", [&] { average_gradients(parameters, group); });
  });
}

TEST(Misuse, TakingPartOnceLeavesTheWeight) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    DataParallel parallel(net, group);
    group.rank() == 0 ? sum(net(row_of(group))).backward() : parallel.take_part();
    require(parallel.total_weight() == 1 && net.weight.grad().item() == 1, "rank 0 alone");
    net.zero_grad();
    sum(net(row_of(group))).backward();
    require(parallel.total_weight() == 2 && net.weight.grad().item() == 2, "both");
  });
}

TEST(Misuse, AParameterUnfrozenLaterIsRefused) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    net.weight.tensor().set_requires_grad(false);
    const DataParallel parallel(net, group);
    net.weight.tensor().set_requires_grad(true);
    require_refused<StateError>("'weight' has a gradient", [&] { sum(net(row_of(group))).backward(); });
  });
}

TEST(Misuse, OfTwoOfAModelTheFirstIsRefused) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    std::optional<DataParallel> first(std::in_place, net, group);
    std::optional<DataParallel> second(std::in_place, net, group);
    require_refused<StateError>("moved to other memory", [&] { first->take_part(); });
    first.reset();
    sum(net(row_of(group))).backward();
    require(net.weight.grad().item() == 2, "the second goes on");
  });
}

TEST(Misuse, AModelAndItsExchangesMayGoAfterABackwardThatBroke) {
  on_both_transports(3, [](ProcessGroup& group) {
    {
      Sequential net(Linear(300, 300, {.seed = 0}), Linear(300, 300, {.seed = 1}));
      const DataParallel parallel(net, group, {.bucket_bytes = 1});
      if (group.rank() == 0)
        add_ready_hook(net.parameters()[1], [](const Tensor&) { throw ValueError("[hook] of the test"); });
      for (int i = 0; i < 3; ++i) {
        net.zero_grad();
        try {
          sum(net(Tensor::ones({2, 300}))).backward();
          throw std::logic_error("no error");
        } catch (const Error&) {
        }
      }
    }
    require_refused<DistributedError>("broken off", [&] { group.barrier(); });
  });
}

TEST(Misuse, AnExceptionInAShardEndsTheGroup) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    VirtualShards shards(net, group, 4);
    group.barrier();  // or one may fail while another still joins
    const auto run = [&] {
      shards.run([&](std::int64_t) {
        if (group.rank() == 0) throw ValueError("[worker] of its own");
        sum(net(row_of(group))).backward();
      });
    };
    if (group.rank() == 0)
      require_refused<ValueError>("of its own", run);
    else
      require_refused<DistributedError>("rank 0", run);
    require_refused<DistributedError>("rank 0", [&] { group.barrier(); });
  });
}

TEST(Misuse, AShardsGradientOfAnotherModelIsRefused) {
  on_both_transports(2, [](ProcessGroup& group) {
    Linear net(1, 1, {.seed = 0});
    Parameter other = Parameter::of(Tensor::ones({1}));
    VirtualShards shards(net, group, 4);
    group.barrier();  // or one may fail while another still joins
    try {
      shards.run([&](std::int64_t) { (sum(net(row_of(group))) + sum(other * 2.0)).backward(); });
      throw std::logic_error("no error");
    } catch (const Error&) {
    }
  });
}

}  // namespace
}  // namespace everyo
