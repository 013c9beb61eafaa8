// Throughput of data-parallel training beside as many independent runs: a transformer-sized perceptron,
// 256-1024-256-1024-256 with ReLU, batch 1024 a rank, Adam, mean of squares. JSON lines.
//
//     build/everyo_data_parallel [--ranks N] [--transport shm|threads] [--bucket BYTES]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "everyo/everyo.h"

namespace {
namespace eo = everyo;
using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2;
  std::string transport = "shm";
  std::size_t bucket = eo::DataParallelOptions{}.bucket_bytes;
};

class Run {
 public:
  explicit Run(std::uint64_t seed) : optimizer_(net_.parameters(), {.lr = 1e-3}), x_(eo::Tensor::empty({1024, 256})) {
    eo::Generator generator(seed);
    for (float& value : x_.data<float>()) value = static_cast<float>(generator.standard_normal());
  }
  eo::Sequential& net() { return net_; }
  void step() {
    optimizer_.zero_grad();
    const eo::Tensor y = net_(x_);
    eo::mean(y * y).backward();
    optimizer_.step();
  }

 private:
  eo::Sequential net_{eo::Linear(256, 1024, {.seed = 1}), eo::ReLU(), eo::Linear(1024, 256, {.seed = 2}), eo::ReLU(),
                      eo::Linear(256, 1024, {.seed = 3}), eo::ReLU(), eo::Linear(1024, 256, {.seed = 4})};
  eo::Adam optimizer_;
  eo::Tensor x_;
};

// Milliseconds of a step on the slowest rank, best of rounds in which all begin together.
double milliseconds(eo::ProcessGroup& group, const std::function<void()>& step) {
  double best = 1e9;
  for (int round = 0; round < 8; ++round) {
    group.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < 10; ++i) step();
    double ms[] = {std::chrono::duration<double, std::milli>(Clock::now() - start).count() / 10};
    group.all_reduce(std::span(ms), eo::ReduceOp::max);
    best = std::min(best, ms[0]);
  }
  return best;
}

std::string measure(eo::ProcessGroup& group, const Options& options) {
  const auto rank = static_cast<std::uint64_t>(group.rank());
  Run apart(rank), together(rank);
  eo::DataParallel parallel(together.net(), group, {.bucket_bytes = options.bucket});
  double exposed = 0;
  int steps = 0;
  double independent = 1e9, joint = 1e9;
  for (int turn = 0; turn < 3; ++turn) {  // in turn, since the machine's speed changes
    independent = std::min(independent, milliseconds(group, [&] { apart.step(); }));
    joint = std::min(joint, milliseconds(group, [&] {
                       together.step();
                       exposed += parallel.times().exposed;
                       ++steps;
                     }));
  }
  if (group.rank() == 0)
    std::printf(
        "{\"peer\": \"everyo\", \"what\": \"data_parallel\", \"transport\": \"%s\", \"ranks\": %d, \"ms\": %.3f, "
        "\"independent_ms\": %.3f, \"of_independent\": %.4f, \"exposed_ms\": %.3f, \"bytes\": %lld}\n",
        options.transport.c_str(), group.world_size(), joint, independent, independent / joint, 1e3 * exposed / steps,
        static_cast<long long>(parallel.times().bytes));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Throughput of data-parallel training.");
  app.add_option("--ranks", options.ranks, "how many");
  app.add_option("--transport", options.transport, "shm or threads");
  app.add_option("--bucket", options.bucket, "bytes of gradients in one exchange");
  CLI11_PARSE(app, argc, argv);
  const auto worker = [&](eo::ProcessGroup& group) { return measure(group, options); };
  if (options.transport == "threads")
    eo::run_threads(options.ranks, worker);
  else
    eo::run_processes(options.ranks, worker);
  return 0;
}
