#include "bench/workloads/workloads.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(Workloads, TheSameBitsOnEveryRunAndForAnyThreads) {
  for (const PeerLoss& peer : peer_losses) {
    const auto losses = [&](int threads) {
      const everyo::ThreadLimit limit(threads);
      const auto workload = make_workload(peer.workload);
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

TEST(Workloads, SteadyTrainingAsksTheSystemForNothing) {
  for (const PeerLoss& peer : peer_losses) {
    const auto workload = make_workload(peer.workload);
    for (int i = 0; i < 3; ++i) workload->step();
    const auto before = everyo::memory::report().system_allocations;
    for (int i = 0; i < 20; ++i) workload->step();
    EXPECT_EQ(everyo::memory::report().system_allocations, before) << peer.workload;
  }
}

}  // namespace
}  // namespace bench
