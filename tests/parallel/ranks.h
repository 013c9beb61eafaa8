#pragma once
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "everyo/parallel.h"
#include "everyo/random.h"
#include "everyo/tensor.h"

// How the tests of this room run on ranks.
namespace everyo::testing_parallel {

using RankBody = std::function<void(ProcessGroup&)>;
using Runner = std::vector<std::string> (*)(int, const std::function<std::string(ProcessGroup&)>&, const SpawnOptions&);
inline constexpr std::array<Runner, 2> runners{run_threads, run_processes};

/// In a child process an assertion would print and be lost: this throws.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw StateError(what);
}

/// Runs it on all ranks, whose results must come in their order.
inline void on_ranks(Runner run, int ranks, const RankBody& body, Timeout timeout = Timeout(60)) {
  const auto worker = [&](ProcessGroup& group) {
    body(group);
    return std::to_string(group.rank());
  };
  std::vector<std::string> order;
  for (int rank = 0; rank < ranks; ++rank) order.push_back(std::to_string(rank));
  EXPECT_EQ(run(ranks, worker, {.timeout = timeout}), order);
}
inline void on_both_transports(int ranks, const RankBody& body, Timeout timeout = Timeout(60)) {
  for (const Runner run : runners) on_ranks(run, ranks, body, timeout);
}

struct World {
  const char* transport;
  Runner run;
  int ranks;
};
inline std::string name_of(const World& world) { return world.transport + std::to_string(world.ranks); }
inline void PrintTo(const World& world, std::ostream* out) { *out << name_of(world); }

class OnWorlds : public ::testing::TestWithParam<World> {
 protected:
  static void on_all(const RankBody& body) { on_ranks(GetParam().run, GetParam().ranks, body); }
};

inline Tensor drawn(const Shape& shape, std::uint64_t seed) {
  const Tensor t = Tensor::empty(shape);
  Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}

}  // namespace everyo::testing_parallel
