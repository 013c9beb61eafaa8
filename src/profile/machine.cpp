#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/clock.h"
#include "everyo/ops.h"
#include "everyo/profile.h"
#include "kernels/parallel.h"
#include "kernels/versions.h"

namespace everyo::inline v1 {
namespace {

/// Runs `body` until the time is up, at least three times, and gives the seconds of the fastest run.
double fastest(double seconds, const std::function<void()>& body) {
  constexpr int least_runs = 3;
  body();  // caches, pages, kernels chosen
  double best = 0, total = 0;
  for (int run = 0; run < least_runs || total < seconds; ++run) {
    const auto start = base::Clock::now();
    body();
    const double took = base::seconds_since(start);
    best = run == 0 ? took : std::min(best, took);
    total += took;
  }
  return best;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view key = "model name";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t value = line.find_first_not_of(" \t:", key.size());
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

}  // namespace

Versions versions() {
#ifdef __clang__
  const std::string compiler = fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  const std::string compiler = fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  return {.everyo = EVERYO_VERSION,
          .onednn = kernels::onednn_version(),
          .highway = kernels::highway_version(),
          .compiler = compiler};
}

Machine describe_machine() {
  return {.processor = processor_name(), .threads = kernels::max_threads(), .detected = detected_isa(), .used = isa()};
}

std::vector<PeakFlops> measure_peak_flops(const MeasureOptions& options) {
  const NoGrad no_grad;
  constexpr std::int64_t smallest = 128, largest = 1024;
  std::vector<PeakFlops> peaks;
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    double best = 0;
    // Larger products come closer to the peak; one that would take much longer than asked for is left out.
    for (std::int64_t n = smallest; n <= largest; n *= 2) {
      const Tensor a = Tensor::full({n, n}, 1.0 / 64, dtype), b = Tensor::full({n, n}, 1.0 / 64, dtype);
      const bool last = n == largest;
      const double seconds =
          fastest(last ? options.seconds : options.seconds / 8, [&] { static_cast<void>(matmul(a, b)); });
      const auto size = static_cast<double>(n);
      best = std::max(best, 2 * size * size * size / seconds * 1e-9);
      constexpr double growth = 8, patience = 4;  // of the time of a run, and how much longer it may take
      if (growth * seconds > patience * options.seconds) break;
    }
    peaks.push_back({dtype, best});
  }
  return peaks;
}

double measure_memory_bandwidth(const MeasureOptions& options) {
  constexpr std::int64_t bytes = std::int64_t{256} << 20, grain = std::int64_t{1} << 20;
  const Tensor from = Tensor::full({bytes}, 1, uint8), to = Tensor::full({bytes}, 0, uint8);
  const double seconds = fastest(options.seconds, [&] {
    kernels::parallel_for(bytes, grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.bytes() + begin, from.bytes() + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2 * static_cast<double>(bytes) / seconds * 1e-9;
}

}  // namespace everyo::inline v1
