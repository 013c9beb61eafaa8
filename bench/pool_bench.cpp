// Pools, forward and forward with backward. Arguments: images, height and width, channels, window, stride.
//
//     build/everyo_pool_bench --benchmark_filter=Max
#include <benchmark/benchmark.h>

#include "everyo/ops.h"

namespace {
using namespace everyo;

Tensor images(const benchmark::State& state, DType dtype) {
  const Shape shape{state.range(0), state.range(1), state.range(1), state.range(2)};
  const Tensor x = Tensor::empty(shape);
  std::uint32_t draw = 1;
  for (float& v : x.data<float>()) {
    draw = draw * 1664525u + 1013904223u;
    v = static_cast<float>(draw >> 8) * 0x1p-24f;
  }
  return cast(x, dtype);
}

void run(benchmark::State& state, const Tensor& x, auto&& pool) {
  for (auto _ : state) {
    Tensor y = pool(x);
    benchmark::DoNotOptimize(y);
  }
}
// The gradient's memory is kept between iterations, as in training.
void run_with_backward(benchmark::State& state, const Tensor& x, auto&& pool) {
  x.set_requires_grad();
  const Tensor seed = Tensor::ones(pool(x).shape(), x.dtype());
  for (auto _ : state) {
    pool(x).backward({.seed = &seed});
    x.zero_grad();
  }
}

template <DType dtype, bool backward>
void max_pool(benchmark::State& state) {
  const Size2D window = state.range(3), stride = state.range(4);
  const Padding padding = window == stride ? Padding() : Padding(1);
  const auto pool = [&](const Tensor& x) { return max_pool2d(x, window, {.stride = stride, .padding = padding}); };
  backward ? run_with_backward(state, images(state, dtype), pool) : run(state, images(state, dtype), pool);
}
template <DType dtype, bool backward>
void average_pool(benchmark::State& state) {
  const Size2D window = state.range(3), stride = state.range(4);
  const Padding padding = window == stride ? Padding() : Padding(1);
  const auto pool = [&](const Tensor& x) { return avg_pool2d(x, window, {.stride = stride, .padding = padding}); };
  backward ? run_with_backward(state, images(state, dtype), pool) : run(state, images(state, dtype), pool);
}
template <bool backward>
void global_average(benchmark::State& state) {
  backward ? run_with_backward(state, images(state, float32), global_avg_pool2d)
           : run(state, images(state, float32), global_avg_pool2d);
}
template <bool backward>
void mean_over_images(benchmark::State& state) {  // beside global_average: the same values
  const auto pool = [](const Tensor& x) { return mean(x, {1, 2}); };
  backward ? run_with_backward(state, images(state, float32), pool) : run(state, images(state, float32), pool);
}

// cnn-cifar's two, and the windows that overlap of a residual network's stem.
void sizes(benchmark::internal::Benchmark* b) {
  b->Args({64, 32, 64, 2, 2})->Args({64, 16, 128, 2, 2})->Args({64, 32, 64, 3, 2})->UseRealTime();
  b->Unit(benchmark::kMicrosecond);
}
void whole_images(benchmark::internal::Benchmark* b) {
  b->Args({64, 8, 128})->Args({64, 32, 64})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(max_pool<float32, false>)->Name("Max")->Apply(sizes);
BENCHMARK(max_pool<float32, true>)->Name("MaxWithBackward")->Apply(sizes);
BENCHMARK(max_pool<bfloat16, false>)->Name("MaxBFloat16")->Apply(sizes);
BENCHMARK(max_pool<bfloat16, true>)->Name("MaxBFloat16WithBackward")->Apply(sizes);
BENCHMARK(average_pool<float32, false>)->Name("Average")->Apply(sizes);
BENCHMARK(average_pool<float32, true>)->Name("AverageWithBackward")->Apply(sizes);
BENCHMARK(global_average<false>)->Name("GlobalAverage")->Apply(whole_images);
BENCHMARK(mean_over_images<false>)->Name("Mean")->Apply(whole_images);
BENCHMARK(global_average<true>)->Name("GlobalAverageWithBackward")->Apply(whole_images);
BENCHMARK(mean_over_images<true>)->Name("MeanWithBackward")->Apply(whole_images);

}  // namespace
