// Our time for each workload, as the peers' programs print theirs: one JSON line each.
//
//     build/everyo_steps [--workload W] [--threads N] [--batch B] [--isa I] [--idle] [--bound]
//
// --idle only makes the workload: what memory the program takes before its first step. --bound prints what a large
// matrix product reaches instead.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/workloads/workloads.h"
#include "everyo/everyo.h"

namespace {
namespace eo = everyo;

struct Options {
  std::string workload, isa;
  int threads = 0;
  std::int64_t batch = 0;
  bool idle = false, bound = false;
};

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Times of one call, each the mean over as many as take 0.2 s, sorted.
std::vector<double> rounds_of(const std::function<void()>& call, int rounds) {
  const int calls = static_cast<int>(std::clamp(200 / milliseconds(call), 3., 2000.));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round)
    times.push_back(milliseconds([&] {
                      for (int i = 0; i < calls; ++i) call();
                    }) /
                    calls);
  std::ranges::sort(times);
  return times;
}

// Most memory this process ever had. Unlike getrusage's figure it does not begin with what forked it.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

// Operations of a step's matrix products and convolutions: forward, and one more for each gradient that is wanted.
double product_flops(bench::Workload& workload) {
  eo::Tracer tracer;
  const eo::Scoped<&eo::Context::tracer> tracing(&tracer);
  workload.net()(workload.inputs());
  double flops = 0;
  for (const eo::Tracer::Step& step : tracer.steps) {
    const std::string_view op = step.op->name;
    if (!op.starts_with("linear") && !op.starts_with("conv2d") && op != "matmul") continue;
    std::vector<const eo::Tensor*> in;
    std::vector<eo::Spec> out;
    for (const eo::Tensor& t : step.in) in.push_back(&t);
    for (const eo::Tensor& t : step.out) out.push_back(t.spec());
    const double once =
        step.op->cost(eo::Inputs(in.data(), in.size()), std::span<const eo::Spec>(out), step.attrs.get()).flops;
    flops += once * (1 + (step.in[0].requires_grad() ? 1 : 0) + (step.in[1].requires_grad() ? 1 : 0));
  }
  return flops;
}

void print_bound(const Options& options) {
  constexpr std::int64_t n = 1024;
  eo::Generator generator(0);
  const eo::Tensor a = eo::Tensor::empty({n, n}), b = eo::Tensor::empty({n, n});
  generator.uniform(-1, 1, a.data<float>());
  generator.uniform(-1, 1, b.data<float>());
  const double best = rounds_of([&] { eo::matmul(a, b); }, 10).front();
  std::printf("{\"peer\": \"everyo\", \"threads\": %d, \"matmul_gflops\": %.1f}\n", options.threads,
              2e-6 * static_cast<double>(n * n * n) / best);
}

void run(const std::string& name, const Options& options) {
  const auto workload = bench::make_workload(name, options.batch);
  if (options.idle) {
    std::printf("{\"peer\": \"everyo\", \"workload\": \"%s\", \"peak_mb\": %.1f}\n", name.c_str(), peak_megabytes());
    return;
  }
  double loss = 0;
  for (int i = 0; i < bench::steps_to_loss; ++i) loss = workload->step().item();
  const auto before = eo::memory::report().system_allocations;
  const std::vector<double> times = rounds_of([&] { workload->step(); }, 10);
  const auto allocations = eo::memory::report().system_allocations - before;
  const double peak = peak_megabytes();
  std::printf(
      "{\"peer\": \"everyo\", \"workload\": \"%s\", \"precision\": \"float32\", \"threads\": %d, \"ms\": %.5f, "
      "\"median_ms\": %.5f, \"loss\": %.9g, \"peak_mb\": %.1f, \"product_flops\": %.0f, \"system_allocations\": "
      "%llu}\n",
      name.c_str(), options.threads, times.front(), times[times.size() / 2], loss, peak, product_flops(*workload),
      static_cast<unsigned long long>(allocations));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times of everyo's training steps.");
  app.add_option("--workload", options.workload, "one of them; else all");
  app.add_option("--threads", options.threads, "most threads, 0: one a core");
  app.add_option("--batch", options.batch, "rows of a step, 0: the workload's own");
  app.add_option("--isa", options.isa, "highest instruction set: baseline, avx2, avx512, avx512_bf16, …");
  app.add_flag("--idle", options.idle, "only make the workload and print the memory it takes");
  app.add_flag("--bound", options.bound, "print what a large matrix product reaches");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!options.isa.empty()) eo::cap_isa(eo::isa_of(options.isa));
    const eo::ThreadLimit limit(options.threads);
    if (options.bound) {
      print_bound(options);
    } else if (!options.workload.empty()) {
      run(options.workload, options);
    } else {
      for (const bench::PeerLoss& peer : bench::peer_losses) run(peer.workload, options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
