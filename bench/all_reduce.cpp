// Times of all_reduce between processes, as bench/peers/gloo.py prints those of Gloo: JSON lines.
//
//     build/everyo_all_reduce [--ranks N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "everyo/everyo.h"

namespace {
namespace eo = everyo;

// Microseconds of one call, best and median of rounds.
template <class F>
std::pair<double, double> timed(int calls, F&& call) {
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) call();
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
                    calls);
  }
  std::ranges::sort(times);
  return {times.front(), times[times.size() / 2]};
}

std::string measure(eo::ProcessGroup& group) {
  for (const std::size_t elements : {256u, 65536u, 1u << 20, 1u << 24}) {
    const eo::Ref<eo::Storage> storage = group.shared_memory(elements * sizeof(float));
    const std::span<float> shared(reinterpret_cast<float*>(storage->data()), elements);
    std::ranges::fill(shared, 1.f);
    std::vector<float> anywhere(elements, 1.f);
    const int calls = static_cast<int>(std::clamp<std::size_t>(40'000'000 / elements, 3, 20'000));
    for (const bool inside : {true, false}) {
      const std::span<float> data = inside ? shared : std::span(anywhere);
      const auto [best, median] = timed(calls, [&] { group.all_reduce(data, eo::ReduceOp::mean); });
      if (group.rank() == 0)
        std::printf(
            "{\"peer\": \"everyo\", \"what\": \"all_reduce\", \"memory\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
            "\"us\": %.3f, \"median_us\": %.3f}\n",
            inside ? "shared" : "anywhere", group.world_size(), 4 * elements, best, median);
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  CLI::App app("Times of all_reduce between processes.");
  app.add_option("--ranks", ranks, "how many");
  CLI11_PARSE(app, argc, argv);
  eo::run_processes(ranks, measure);
  return 0;
}
