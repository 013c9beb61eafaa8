// Convolutions of cnn-cifar (batch 64, 3x3, "same") and of small images: forward, and each gradient alone.
//     build/everyo_convolution_bench --benchmark_filter=layer:0
#include <benchmark/benchmark.h>

#include <string>

#include "everyo/ops.h"

namespace {
using everyo::Tensor;

struct Layer {
  const char* name;
  std::int64_t size, channels, outputs;
};
constexpr Layer layers[] = {{"32x32x3->32", 32, 3, 32},
                            {"32x32x32->64", 32, 32, 64},
                            {"16x16x64->128", 16, 64, 128},
                            {"8x8x1->8", 8, 1, 8},
                            {"4x4x8->16", 4, 8, 16}};
constexpr everyo::DType dtypes[] = {everyo::float32, everyo::float16, everyo::bfloat16};
constexpr const char* passes[] = {"forward", "gradient of x", "gradient of the weight"};
constexpr std::int64_t images = 64;

Tensor filled(const everyo::Shape& shape, everyo::DType dtype) {
  const Tensor t = Tensor::empty(shape, everyo::float32);
  std::uint32_t state = 1;
  for (float& v : t.data<float>()) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return everyo::cast(t, dtype);
}

void convolution(benchmark::State& state) {
  const Layer& layer = layers[state.range(0)];
  const std::int64_t pass = state.range(1);
  const everyo::DType dtype = dtypes[state.range(2)];
  const Tensor x = filled({images, layer.size, layer.size, layer.channels}, dtype);
  const Tensor weight = filled({3, 3, layer.channels, layer.outputs}, dtype);
  const everyo::Conv2dOptions options{.padding = "same"};
  if (pass == 0) {
    for (auto _ : state) benchmark::DoNotOptimize(everyo::conv2d(x, weight, {}, options));
  } else {
    const Tensor& leaf = pass == 1 ? x : weight;
    leaf.set_requires_grad();
    const Tensor y = everyo::conv2d(x, weight, {}, options), seed = filled(y.shape(), dtype);
    for (auto _ : state) {
      y.backward({.retain_graph = true, .seed = &seed});
      leaf.zero_grad();
    }
  }
  state.SetLabel(std::string(layer.name) + " " + passes[pass] + " " + std::string(everyo::name_of(dtype)));
  const auto products = static_cast<double>(images * layer.size * layer.size * layer.outputs * 9 * layer.channels);
  state.counters["FLOP/s"] = benchmark::Counter(2 * products, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(convolution)
    ->ArgNames({"layer", "pass", "dtype"})
    ->ArgsProduct({{0, 1, 2, 3, 4}, {0, 1, 2}, {0, 1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
