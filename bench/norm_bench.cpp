// Time of the norms and, as a yardstick, bytes moved if each pass reads and writes its operands once. Letters: C
// channels, H height and width of an image, 64 images; D width.
#include <benchmark/benchmark.h>

#include "everyo/everyo.h"

namespace {
namespace eo = everyo;

eo::Tensor drawn(const eo::Shape& shape, std::uint64_t seed, eo::DType dtype = eo::float32) {
  eo::Generator generator(seed);
  const eo::Tensor t = eo::Tensor::empty(shape);
  for (float& v : t.data<float>()) v = static_cast<float>(generator.normal());
  return eo::cast(t, dtype);
}

eo::DType dtype_of(const benchmark::State& state) { return static_cast<eo::DType>(state.range(2)); }

struct Images {
  explicit Images(const benchmark::State& state) {
    const std::int64_t c = state.range(0), h = state.range(1);
    x = drawn({64, h, h, c}, 1, dtype_of(state));
    seed = drawn({64, h, h, c}, 2, dtype_of(state));
    weight = drawn({c}, 3).set_requires_grad();
    bias = drawn({c}, 4).set_requires_grad();
  }
  eo::Tensor x, seed, weight, bias;
};
constexpr eo::NormOptions with_relu{.activation = eo::Activation::relu};

void bytes_of(benchmark::State& state, const eo::Tensor& x, int passes) {
  const auto bytes = static_cast<std::int64_t>(x.spec().bytes());
  state.SetBytesProcessed(state.iterations() * bytes * passes);
}

// Moments read x; y is a read and a write.
void batch_norm_forward(benchmark::State& state) {
  const Images images(state);
  for (auto _ : state) benchmark::DoNotOptimize(eo::batch_norm(images.x, images.weight, images.bias, with_relu));
  bytes_of(state, images.x, 3);
}
// Sums read x and the gradient; the gradient of x reads both and writes.
void batch_norm_backward(benchmark::State& state) {
  const Images images(state);
  images.x.set_requires_grad();
  const eo::Tensor y = eo::batch_norm(images.x, images.weight, images.bias, with_relu).y;
  for (auto _ : state) {
    images.x.zero_grad();
    y.backward({.retain_graph = true, .seed = &images.seed});
  }
  bytes_of(state, images.x, 5);
}
void batch_norm_eval(benchmark::State& state) {
  const Images images(state);
  const eo::Tensor mean = eo::Tensor::zeros(images.weight.shape()), variance = eo::Tensor::ones(images.weight.shape());
  for (auto _ : state)
    benchmark::DoNotOptimize(eo::batch_norm(images.x, mean, variance, images.weight, images.bias, with_relu));
  bytes_of(state, images.x, 2);
}

void images(benchmark::internal::Benchmark* b) {
  for (const eo::DType dtype : {eo::float32, eo::float16, eo::bfloat16})
    for (const auto& [c, h] : {std::pair{32, 32}, {64, 32}, {128, 16}, {8, 32}, {3, 32}})
      b->Args({c, h, static_cast<std::int64_t>(dtype)});
  b->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(batch_norm_forward)->Apply(images);
BENCHMARK(batch_norm_backward)->Apply(images);
BENCHMARK(batch_norm_eval)->Apply(images);

// Forward reads x and writes y, backward reads x and the gradient and writes.
void layer_norm_forward(benchmark::State& state) {
  const std::int64_t d = state.range(1);
  const eo::Tensor x = drawn({state.range(0), d}, 1, dtype_of(state)), weight = drawn({d}, 2), bias = drawn({d}, 3);
  for (auto _ : state) benchmark::DoNotOptimize(eo::layer_norm(x, {d}, weight, bias));
  bytes_of(state, x, 2);
}
void layer_norm_backward(benchmark::State& state) {
  const std::int64_t d = state.range(1);
  const eo::Tensor x = drawn({state.range(0), d}, 1, dtype_of(state)).set_requires_grad();
  const eo::Tensor weight = drawn({d}, 2).set_requires_grad(), bias = drawn({d}, 3).set_requires_grad();
  const eo::Tensor seed = drawn({state.range(0), d}, 4, dtype_of(state)), y = eo::layer_norm(x, {d}, weight, bias);
  for (auto _ : state) {
    for (const eo::Tensor& leaf : {x, weight, bias}) leaf.zero_grad();
    y.backward({.retain_graph = true, .seed = &seed});
  }
  bytes_of(state, x, 3);
}
void rows(benchmark::internal::Benchmark* b) {
  for (const eo::DType dtype : {eo::float32, eo::float16, eo::bfloat16})
    for (const auto& [n, d] : {std::pair{1024, 256}, {4096, 1024}, {32, 70000}})
      b->Args({n, d, static_cast<std::int64_t>(dtype)});
  b->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(layer_norm_forward)->Apply(rows);
BENCHMARK(layer_norm_backward)->Apply(rows);

// As batch norm's without ReLU, and the backward reads x once more for the moments.
void group_norm_forward(benchmark::State& state) {
  const Images images(state);
  for (auto _ : state) benchmark::DoNotOptimize(eo::group_norm(images.x, 8, images.weight, images.bias));
  bytes_of(state, images.x, 3);
}
void group_norm_backward(benchmark::State& state) {
  const Images images(state);
  images.x.set_requires_grad();
  const eo::Tensor y = eo::group_norm(images.x, 8, images.weight, images.bias);
  for (auto _ : state) {
    images.x.zero_grad();
    y.backward({.retain_graph = true, .seed = &images.seed});
  }
  bytes_of(state, images.x, 6);
}
BENCHMARK(group_norm_forward)->Args({64, 32, 0})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(group_norm_backward)->Args({64, 32, 0})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
