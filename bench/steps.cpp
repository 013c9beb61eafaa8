// Our time for each workload, as the peers' programs print theirs: one JSON line each.
//
//     build/everyo_steps [--workload W] [--precision P] [--threads N] [--batch B] [--isa I] [--idle] [--bound]
//
// In a half, the same step in float32 is timed in turn with it: over_float32 is the median of the ratios of rounds next
// to each other. --idle only makes the workload: what memory the program takes before its first step. --bound prints
// what a large matrix product reaches instead.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/workloads/workloads.h"
#include "everyo/everyo.h"

namespace {
namespace eo = everyo;

struct Options {
  std::string workload, isa, precision = "float32";
  int threads = 0;
  std::int64_t batch = 0;
  bool idle = false, bound = false;
};

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// A call's times, each the mean over as many calls as take 0.2 s.
class Timer {
 public:
  explicit Timer(std::function<void()> call)
      : call_(std::move(call)), calls_(static_cast<int>(std::clamp(200 / milliseconds(call_), 3., 2000.))) {}
  double round() {
    times_.push_back(milliseconds([&] {
                       for (int i = 0; i < calls_; ++i) call_();
                     }) /
                     calls_);
    return times_.back();
  }
  [[nodiscard]] double best() const { return std::ranges::min(times_); }
  [[nodiscard]] std::vector<double> times() const { return times_; }

 private:
  std::function<void()> call_;
  int calls_;
  std::vector<double> times_;
};
constexpr int rounds = 10;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
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
  Timer timer([&] { eo::matmul(a, b); });
  for (int i = 0; i < rounds; ++i) timer.round();
  std::printf("{\"peer\": \"everyo\", \"threads\": %d, \"matmul_gflops\": %.1f}\n", options.threads,
              2e-6 * static_cast<double>(n * n * n) / timer.best());
}

// Bytes of activations at a step's peak, above what there was before it.
std::int64_t activation_bytes(bench::Workload& workload) {
  const auto usage = [] { return eo::memory::report()[eo::MemoryCategory::activation]; };
  const std::int64_t before = usage().now;
  eo::memory::reset_peak();
  workload.step();
  return usage().peak - before;
}

struct Started {
  std::unique_ptr<bench::Workload> workload;
  double loss = 0;
  std::int64_t activation_bytes = 0;
};
Started start(const std::string& name, const Options& options, eo::DType precision) {
  Started s{.workload = bench::make_workload(name, options.batch, precision)};
  for (int i = 0; i < bench::steps_to_loss; ++i) s.loss = s.workload->step().item();
  s.activation_bytes = activation_bytes(*s.workload);
  return s;
}

// JSON members: time and activation bytes of a half's step over those of float32's, timed in turn.
std::string beside_float32(Timer& timer, const Started& ours, const Started& wide) {
  Timer wide_timer([&] { wide.workload->step(); });
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) ratios.push_back(timer.round() / wide_timer.round());
  char members[128];
  std::snprintf(members, sizeof members, ", \"over_float32\": %.4f, \"activation_bytes_over_float32\": %.4f",
                median(ratios),
                static_cast<double>(ours.activation_bytes) / static_cast<double>(wide.activation_bytes));
  return members;
}

void run(const std::string& name, const Options& options) {
  const eo::DType precision = eo::dtype_of(options.precision);
  if (options.idle) {
    const auto workload = bench::make_workload(name, options.batch, precision);
    std::printf("{\"peer\": \"everyo\", \"workload\": \"%s\", \"peak_mb\": %.1f}\n", name.c_str(), peak_megabytes());
    return;
  }
  const Started ours = start(name, options, precision);
  Timer timer([&] { ours.workload->step(); });
  timer.round();
  const auto before = eo::memory::report().system_allocations;
  timer.round();
  const auto allocations = eo::memory::report().system_allocations - before;
  const double peak = peak_megabytes();
  const double flops = product_flops(*ours.workload);

  std::string beside;
  if (precision == eo::float32)
    for (int i = 2; i < rounds; ++i) timer.round();
  else
    beside = beside_float32(timer, ours, start(name, options, eo::float32));
  std::printf(
      "{\"peer\": \"everyo\", \"workload\": \"%s\", \"precision\": \"%s\", \"isa\": \"%s\", \"threads\": %d, \"ms\": "
      "%.5f, \"median_ms\": %.5f, \"loss\": %.9g, \"peak_mb\": %.1f, \"activation_bytes\": %lld, "
      "\"product_flops\": %.0f, \"system_allocations\": %llu%s}\n",
      name.c_str(), options.precision.c_str(), std::string(eo::name_of(eo::isa())).c_str(), options.threads,
      timer.best(), median(timer.times()), ours.loss, peak, static_cast<long long>(ours.activation_bytes), flops,
      static_cast<unsigned long long>(allocations), beside.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times of everyo's training steps.");
  app.add_option("--workload", options.workload, "one of them; else all");
  app.add_option("--precision", options.precision, "float32, float16 or bfloat16")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
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
