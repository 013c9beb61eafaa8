#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "parallel/ranks.h"

// DataParallel's buckets follow the order in which gradients come, and no bit depends on it.
namespace everyo {
namespace {

using namespace testing_parallel;

// Layers are declared last to first: gradients come in the order opposite to the one that DataParallel begins with.
struct Backwards : Module<Backwards> {
  Backwards() { third.weight = first.weight.tie(); }
  void visit(Visitor& v) { v("fourth", fourth)("third", third)("spare", spare)("second", second)("first", first); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return run(x, false); }
  [[nodiscard]] Tensor run(const Tensor& x, bool with_spare) const {
    const Tensor y = tanh(third(tanh(second(tanh(first(x))))));
    return fourth(with_spare ? tanh(spare(y)) : y);
  }
  Linear first{8, 8, {.seed = 1}}, second{8, 8, {.seed = 2}}, third{8, 8, {.seed = 3}}, fourth{8, 1, {.seed = 4}},
      spare{8, 8, {.seed = 5}};
};

void require_same_gradients(Backwards& a, Backwards& b, const std::string& when) {
  const auto of_a = a.named_parameters(), of_b = b.named_parameters();
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const Tensor x = of_a[i].second.grad(), y = of_b[i].second.grad();
    require(x.defined() == y.defined(), of_a[i].first + " is there " + when);
    if (x.defined())
      require(std::memcmp(x.bytes(), y.bytes(), x.spec().bytes()) == 0, of_a[i].first + " has other bits " + when);
  }
}

Tensor rows_of(const ProcessGroup& group, std::uint64_t step) {
  return drawn({5, 8}, 10 * step + static_cast<std::uint64_t>(group.rank()));
}

class BucketOrder : public OnWorlds {};

TEST_P(BucketOrder, IsThatInWhichGradientsCame) {
  on_all([](ProcessGroup& group) {
    Backwards net;
    DataParallel parallel(net, group, {.bucket_bytes = 1});  // a bucket each
    const auto parameters = static_cast<std::int64_t>(net.parameters().size());
    const std::int64_t used = parameters - 2;  // without `spare`
    // Counted beside DataParallel's own figures: how many gradients have come when a bucket is done.
    std::int64_t came = 0;
    for (const Tensor& p : net.parameters()) add_ready_hook(p, [&came](const Tensor&) { ++came; });
    for (std::uint64_t step = 0; step < 3; ++step) {
      came = 0;
      net.zero_grad();
      mean(net.run(rows_of(group, step), false)).backward();
      require(came == used && parallel.times().buckets == parameters, "all came");
      const std::int64_t early = parallel.times().early;
      require(step == 0 ? early <= 1 : early == used - 1, "step " + std::to_string(step) + ": " +
                                                              std::to_string(early) + " of " + std::to_string(used) +
                                                              " were under way");
    }
  });
}

TEST_P(BucketOrder, ChangesNoBit) {
  for (const std::size_t bucket : {1u, 600u, 1u << 20})
    on_all([bucket](ProcessGroup& group) {
      Backwards exchanged, averaged;
      DataParallel parallel(exchanged, group, {.bucket_bytes = bucket});
      for (std::uint64_t step = 0; step < 4; ++step) {
        // Without zero_grad() before the third: what comes adds to a gradient that has moved.
        for (Backwards* net : {&exchanged, &averaged})
          if (step != 2) net->zero_grad();
        // The spare layer: on no rank at first, on the last one alone, on all.
        const bool spare = step == 1 ? group.rank() == group.world_size() - 1 : step > 1;
        const auto weight = static_cast<double>(1 + group.rank());
        const Tensor x = rows_of(group, step);
        parallel.set_weight(weight);
        mean(exchanged.run(x, spare)).backward();
        mean(averaged.run(x, spare)).backward();
        average_gradients(averaged.parameters(), group, {.weight = weight});
        require_same_gradients(exchanged, averaged, "in step " + std::to_string(step));
      }
    });
}

TEST_P(BucketOrder, WaitsForABackwardOfRankZero) {
  on_all([](ProcessGroup& group) {
    if (group.world_size() == 1) return;
    Backwards net;
    DataParallel parallel(net, group, {.bucket_bytes = 1});
    std::vector<std::int64_t> early;
    for (std::uint64_t step = 0; step < 4; ++step) {
      net.zero_grad();
      if (group.rank() == 0 && step < 2) {
        parallel.take_part();
      } else {
        parallel.set_weight(5);
        mean(net(rows_of(group, step))).backward();
      }
      early.push_back(parallel.times().early);
    }
    require(early[1] <= 1 && early[2] <= 1 && early[3] == static_cast<std::int64_t>(net.parameters().size()) - 3,
            "the order is rank 0's first");
  });
}

// Of two dtypes in turn: a bucket of each is filled at a time.
TEST_P(BucketOrder, FillsABucketOfEachDtype) {
  on_all([](ProcessGroup& group) {
    Sequential net;
    const auto dtype_of = [](std::size_t i) { return i % 2 == 0 ? float64 : float32; };
    for (std::size_t i = 0; i < 6; ++i) net.push_back(Linear(8, 8, {.seed = i, .bias = false, .dtype = dtype_of(i)}));
    DataParallel parallel(net, group, {.bucket_bytes = 4096});
    for (int step = 0; step < 2; ++step) {
      Tensor x = rows_of(group, 0);
      for (std::size_t i = 0; i < 6; ++i) x = net[i].forward_any(cast(x, dtype_of(i)));
      mean(x).backward();
      require(parallel.times().buckets == 2, std::to_string(parallel.times().buckets) + " buckets");
    }
  });
}

// While backward goes on, the exchange has the gradient of a tied weight: nothing sums its uses again.
TEST(TiedWeights, KeepWhatAReadyHookWrites) {
  Backwards net;
  (void)net.parameters();  // which finds its places of use
  mean(net(Tensor::ones({2, 8}))).backward();
  const Tensor plain = net.first.weight.grad().copy();
  net.zero_grad();
  const Tensor weight = net.first.weight.tensor();
  EXPECT_EQ(weight.body()->leaf->use_paths.size(), 2u);
  add_ready_hook(weight, [](const Tensor& leaf) {
    for (float& value : leaf.body()->leaf->grad.value.data<float>()) value = 7;
  });
  mean(net(Tensor::ones({2, 8}))).backward();
  EXPECT_THAT(net.first.weight.grad().to_vector(), ::testing::Each(7));
  EXPECT_NE(plain.to_vector()[0], 7);
}

INSTANTIATE_TEST_SUITE_P(Worlds, BucketOrder,
                         ::testing::Values(World{"one", run_threads, 1}, World{"threads", run_threads, 2},
                                           World{"threads", run_threads, 3}, World{"processes", run_processes, 2},
                                           World{"processes", run_processes, 3}),
                         [](const auto& world) { return name_of(world.param); });

}  // namespace
}  // namespace everyo
