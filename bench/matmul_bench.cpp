// Matrix products: of square matrices [N, N], and of layers, x [M, K] w [K, N]; float32, float16 and bfloat16; beside
// oneDNN called directly (a primitive made once, memory kept) where it has such a product of its own.
//     build/everyo_matmul_bench --benchmark_filter=N:1024
// EVERYO_ISA caps the instruction set of ours, ONEDNN_MAX_CPU_ISA that of both.
#include <benchmark/benchmark.h>

#include <dnnl.h>
#include <dnnl.hpp>
#include <string>

#include "everyo/context.h"
#include "everyo/ops.h"
#include "everyo/random.h"

namespace {
using everyo::DType;
using everyo::Tensor;

Tensor drawn(std::int64_t rows, std::int64_t columns, std::uint64_t seed, DType dtype) {
  const Tensor t = Tensor::empty({rows, columns});
  everyo::Generator(seed).uniform(-1, 1, t.data<float>());
  return everyo::cast(t, dtype);
}

void count(benchmark::State& state, std::int64_t m, std::int64_t k, std::int64_t n) {
  const auto products = static_cast<double>(m * k * n);
  state.counters["FLOP/s"] = benchmark::Counter(2 * products, benchmark::Counter::kIsIterationInvariantRate);
}

void multiply(benchmark::State& state, DType dtype, std::int64_t m, std::int64_t k, std::int64_t n, int threads) {
  const everyo::ThreadLimit limit(threads);
  const Tensor a = drawn(m, k, 0, dtype), b = drawn(k, n, 1, dtype);
  for (auto _ : state) benchmark::DoNotOptimize(everyo::matmul(a, b));
  count(state, m, k, n);
}

// Threads: OMP_NUM_THREADS, which oneDNN reads once in a process.
void multiply_by_onednn(benchmark::State& state, DType dtype, std::int64_t m, std::int64_t k, std::int64_t n) {
  using Type = dnnl::memory::data_type;
  const Type type = dtype == everyo::float16 ? Type::f16 : dtype == everyo::bfloat16 ? Type::bf16 : Type::f32;
  const Tensor a = drawn(m, k, 0, dtype), b = drawn(k, n, 1, dtype), c = Tensor::empty({dtype, {m, n}});
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto matrix = [type](std::int64_t rows, std::int64_t columns) {
    return dnnl::memory::desc({rows, columns}, type, dnnl::memory::format_tag::ab);
  };
  const dnnl::memory::desc left = matrix(m, k), right = matrix(k, n), result = matrix(m, n);
  const dnnl::matmul::primitive_desc description(engine, left, right, result, dnnl::primitive_attr(), true);
  if (!description) return state.SkipWithError("oneDNN has no such product on this processor");
  state.SetLabel(description.impl_info_str());
  const dnnl::matmul product(description);
  const std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, {left, engine, a.bytes()}},
                                                        {DNNL_ARG_WEIGHTS, {right, engine, b.bytes()}},
                                                        {DNNL_ARG_DST, {result, engine, c.bytes()}}};
  for (auto _ : state) {
    product.execute(stream, arguments);
    stream.wait();
  }
  count(state, m, k, n);
}

template <DType dtype>
void ours(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  multiply(state, dtype, n, n, n, static_cast<int>(state.range(1)));
}
template <DType dtype>
void onednn(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  multiply_by_onednn(state, dtype, n, n, n);
}
template <DType dtype>
void layer(benchmark::State& state) {
  multiply(state, dtype, state.range(0), state.range(1), state.range(2), static_cast<int>(state.range(3)));
}
template <DType dtype>
void onednn_layer(benchmark::State& state) {
  multiply_by_onednn(state, dtype, state.range(0), state.range(1), state.range(2));
}

void squares(benchmark::internal::Benchmark* b) {
  b->ArgNames({"N", "threads"})->ArgsProduct({{64, 256, 1024, 2048}, {1, 2}});
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void onednn_squares(benchmark::internal::Benchmark* b) {
  b->ArgNames({"N"})->ArgsProduct({{64, 256, 1024, 2048}})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
constexpr std::int64_t layers[][3] = {{32, 64, 32}, {64, 784, 256}, {1024, 256, 256}, {1024, 256, 1024}};
void layer_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "K", "N", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const auto& [m, k, n] : layers)
    for (const std::int64_t threads : {1, 2}) b->Args({m, k, n, threads});
}
void onednn_layer_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "K", "N"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const auto& [m, k, n] : layers) b->Args({m, k, n});
}

BENCHMARK(ours<everyo::float32>)->Apply(squares);
BENCHMARK(ours<everyo::float16>)->Apply(squares);
BENCHMARK(ours<everyo::bfloat16>)->Apply(squares);
BENCHMARK(onednn<everyo::float32>)->Apply(onednn_squares);
BENCHMARK(onednn<everyo::float16>)->Apply(onednn_squares);
BENCHMARK(onednn<everyo::bfloat16>)->Apply(onednn_squares);
BENCHMARK(layer<everyo::float32>)->Apply(layer_shapes);
BENCHMARK(layer<everyo::float16>)->Apply(layer_shapes);
BENCHMARK(layer<everyo::bfloat16>)->Apply(layer_shapes);
BENCHMARK(onednn_layer<everyo::float32>)->Apply(onednn_layer_shapes);
BENCHMARK(onednn_layer<everyo::float16>)->Apply(onednn_layer_shapes);
BENCHMARK(onednn_layer<everyo::bfloat16>)->Apply(onednn_layer_shapes);

}  // namespace
