// Products of square matrices [N, N], float32, beside oneDNN called directly: a primitive made once, memory kept.
//     build/everyo_matmul_bench --benchmark_filter=N:1024
#include <benchmark/benchmark.h>

#include <dnnl.h>
#include <dnnl.hpp>

#include "everyo/context.h"
#include "everyo/ops.h"
#include "everyo/random.h"

namespace {
using everyo::Tensor;

Tensor drawn(std::int64_t n, std::uint64_t seed) {
  const Tensor t = Tensor::empty({n, n});
  everyo::Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}

void count(benchmark::State& state, std::int64_t n) {
  const auto products = static_cast<double>(n * n * n);
  state.counters["FLOP/s"] = benchmark::Counter(2 * products, benchmark::Counter::kIsIterationInvariantRate);
}

void ours(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const everyo::ThreadLimit limit(static_cast<int>(state.range(1)));
  const Tensor a = drawn(n, 0), b = drawn(n, 1);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::matmul(a, b));
  count(state, n);
}

// Threads: OMP_NUM_THREADS, which oneDNN reads once in a process.
void onednn(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const Tensor a = drawn(n, 0), b = drawn(n, 1), c = Tensor::empty({n, n});
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc matrix({n, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
  const dnnl::matmul product(dnnl::matmul::primitive_desc(engine, matrix, matrix, matrix));
  const std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, {matrix, engine, a.bytes()}},
                                                        {DNNL_ARG_WEIGHTS, {matrix, engine, b.bytes()}},
                                                        {DNNL_ARG_DST, {matrix, engine, c.bytes()}}};
  for (auto _ : state) {
    product.execute(stream, arguments);
    stream.wait();
  }
  count(state, n);
}

BENCHMARK(ours)
    ->ArgNames({"N", "threads"})
    ->ArgsProduct({{64, 256, 1024, 2048}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(onednn)->ArgNames({"N"})->ArgsProduct({{64, 256, 1024, 2048}})->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
