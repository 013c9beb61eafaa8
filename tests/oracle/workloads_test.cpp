#include "bench/workloads/workloads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "everyo/memory.h"

namespace bench {
namespace {

// Weights and data are the peers' to the bit; 20 steps of float32 arithmetic in another order leave 1e-4 relative.
TEST(Workloads, ReachThePeersLoss) {
  for (const PeerLoss& peer : peer_losses) {
    const auto workload = make_workload(peer.workload);
    double loss = 0;
    for (int i = 0; i < steps_to_loss; ++i) loss = workload->step().item();
    EXPECT_NEAR(loss / peer.loss, 1, 1e-4) << peer.workload;
  }
}

// A half rounds each product by 2^-11 of it in float16, 2^-8 in bfloat16 at the most; the mean over a batch moves by
// about half of that. mlp-mid's loss is next to 0, where only the size of its logits counts.
TEST(Workloads, ReachTheLossOfFloat32InHalves) {
  for (const PeerLoss& peer : peer_losses) {
    for (const auto& [half, relative] : {std::pair(everyo::float16, 3e-4), std::pair(everyo::bfloat16, 2e-3)}) {
      const auto workload = make_workload(peer.workload, 0, half);
      double loss = 0;
      for (int i = 0; i < steps_to_loss; ++i) loss = workload->step().item();
      EXPECT_NEAR(loss, peer.loss, relative * peer.loss + 1e-5) << peer.workload << " " << everyo::name_of(half);
    }
  }
}

class WorkloadsIn : public testing::TestWithParam<everyo::DType> {};

TEST_P(WorkloadsIn, TheSameBitsOnEveryRunAndForAnyThreads) {
  for (const PeerLoss& peer : peer_losses) {
    const auto losses = [&](int threads) {
      const everyo::ThreadLimit limit(threads);
      const auto workload = make_workload(peer.workload, 0, GetParam());
      std::vector<double> list;
      for (int i = 0; i < 5; ++i) list.push_back(workload->step().item());
      return list;
    };
    const auto one = losses(1);
    EXPECT_EQ(one, losses(1)) << peer.workload;
    EXPECT_EQ(one, losses(2)) << peer.workload;
    EXPECT_EQ(one, losses(4)) << peer.workload;
  }
}

TEST_P(WorkloadsIn, SteadyTrainingAsksTheSystemForNothing) {
  for (const PeerLoss& peer : peer_losses) {
    const auto workload = make_workload(peer.workload, 0, GetParam());
    for (int i = 0; i < 3; ++i) workload->step();
    const auto before = everyo::memory::report().system_allocations;
    for (int i = 0; i < 10; ++i) workload->step();
    EXPECT_EQ(everyo::memory::report().system_allocations, before) << peer.workload;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WorkloadsIn, testing::Values(everyo::float32, everyo::float16, everyo::bfloat16),
                         [](const auto& each) { return std::string(everyo::name_of(each.param)); });

// Half of float32's but for casts of the input and the weights.
TEST(Workloads, HalvesTakeHalfTheActivations) {
  const auto bytes = [](everyo::DType precision) {
    const auto workload = make_workload("cnn-cifar", 16, precision);
    workload->step();
    const auto usage = [] { return everyo::memory::report()[everyo::MemoryCategory::activation]; };
    const auto before = usage().now;
    everyo::memory::reset_peak();
    workload->step();
    return static_cast<double>(usage().peak - before);
  };
  const double wide = bytes(everyo::float32);
  EXPECT_LE(bytes(everyo::float16), 0.55 * wide);
  EXPECT_LE(bytes(everyo::bfloat16), 0.55 * wide);
}

}  // namespace
}  // namespace bench
