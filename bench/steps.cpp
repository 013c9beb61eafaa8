// Our time for each workload, as the peers' programs print theirs: one JSON line each.
//
//     build/everyo_steps [THREADS [WORKLOAD]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string_view>

#include "everyo/memory.h"
#include "workloads/workloads.h"

namespace {
void run(const char* name, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto workload = bench::make_workload(name);
  double loss = 0;
  for (int i = 0; i < bench::steps_to_loss; ++i) loss = workload->step().item();
  const auto before = everyo::memory::report().system_allocations;
  const auto once = Clock::now();
  workload->step();
  const double seconds = std::chrono::duration<double>(Clock::now() - once).count();
  const int steps = static_cast<int>(std::clamp(0.2 / seconds, 3., 2000.));
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 10; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) workload->step();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count() / steps);
  }
  const auto allocations = everyo::memory::report().system_allocations - before;
  std::printf(
      "{\"peer\": \"everyo\", \"workload\": \"%s\", \"precision\": \"float32\", \"threads\": %d, \"ms\": %.5f, "
      "\"loss\": %.9g, \"system_allocations\": %llu}\n",
      name, threads, best, loss, static_cast<unsigned long long>(allocations));
}
}  // namespace

int main(int argc, char** argv) {
  try {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
    const everyo::ThreadLimit limit(threads);
    for (const auto& peer : bench::peer_losses)
      if (argc < 3 || std::string_view(argv[2]) == peer.workload) run(peer.workload, threads);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
