// Ops that wait for memory, in bytes a second, beside memcpy's of as many bytes: what this machine's memory gives.
// elements: 2^12 stay in the first cache, 2^16 in the second, 2^24 in none.
//     build/everyo_memory_bench --benchmark_filter=elements:16777216
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/random.h"

namespace {
using everyo::Tensor;

Tensor drawn(std::int64_t n, std::uint64_t seed) {
  const Tensor t = Tensor::empty({n});
  everyo::Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}

// Every element of float32 that is read or written.
void count(benchmark::State& state, std::int64_t elements) {
  state.counters["bytes/s"] = benchmark::Counter(
      4 * static_cast<double>(elements), benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1024);
}

void copy(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0), y = drawn(state.range(0), 1);
  for (auto _ : state) {
    std::memcpy(y.bytes(), x.bytes(), x.spec().bytes());
    benchmark::ClobberMemory();
  }
  count(state, 2 * x.size());
}

void add(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0), y = drawn(state.range(0), 1);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::add(x, y));
  count(state, 3 * x.size());
}

void relu(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::relu(x));
  count(state, 2 * x.size());
}

void sum(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::sum(x));
  count(state, x.size());
}

void exp(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::exp(x));
  count(state, 2 * x.size());
}

void to_float16(benchmark::State& state) {
  const Tensor x = drawn(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::cast(x, everyo::float16));
  count(state, x.size() + x.size() / 2);
}

// One weight: it, its gradient and two moments are read; it and the moments are written.
void adam(benchmark::State& state) {
  const Tensor weight = drawn(state.range(0), 0);
  weight.set_requires_grad();
  everyo::sum(everyo::multiply(weight, weight)).backward();
  everyo::Adam optimizer({weight}, {.lr = 1e-3});
  for (auto _ : state) optimizer.step();
  count(state, 7 * weight.size());
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("elements")->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 24)->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(copy)->Apply(sizes);
BENCHMARK(add)->Apply(sizes);
BENCHMARK(relu)->Apply(sizes);
BENCHMARK(sum)->Apply(sizes);
BENCHMARK(exp)->Apply(sizes);
BENCHMARK(to_float16)->Apply(sizes);
BENCHMARK(adam)->Apply(sizes);

}  // namespace
