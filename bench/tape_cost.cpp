// What a recorded op costs beyond its kernel: a 12-op MLP at width 4 and batch 1, forward and backward, against the
// same kernels called by hand on buffers that exist. Prints one JSON line.
//
//     build/everyo_tape_cost
//
// The hand-called side runs each record's forward; for backward, records of the same sizes stand in.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <vector>

#include "everyo/memory.h"
#include "everyo/ops.h"

namespace {
using namespace everyo;
using Clock = std::chrono::steady_clock;

template <class F>
double nanoseconds(F&& f, int count) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 25; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) f();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / count);
  }
  return best;
}

Tensor parameter(const Shape& shape) {
  const Tensor t = Tensor::full(shape, 0.1);
  t.set_requires_grad();
  return t;
}

// An op's attributes as the public function makes them, found by tracing one call.
struct Kernel {
  Tracer::Step step;
  void run() const {
    std::array<const Tensor*, 4> in{};
    for (std::size_t i = 0; i < step.in.size(); ++i) in[i] = &step.in[i];
    step.op->forward(Call{Inputs(in.data(), step.in.size()), step.out}, step.attrs.get());
  }
};
template <class F>
Kernel kernel_of(F&& call) {
  Tracer tracer;
  const NoGrad no_grad;
  const Scoped<&Context::tracer> scope(&tracer);
  call();
  return {tracer.steps.at(0)};
}

}  // namespace

int main() {
  constexpr int layers = 4, rounds = 20000;
  std::vector<Tensor> weights, biases;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(parameter({4, 4}));
    biases.push_back(parameter({4}));
  }
  const Tensor x = Tensor::ones({1, 4});
  const auto step = [&] {
    Tensor t = x;
    for (std::size_t i = 0; i < layers; ++i) {
      t = add(matmul(t, weights[i]), biases[i]);
      if (i + 1 < layers) t = relu(t);
    }
    mean(t).backward();
    for (const Tensor& w : weights) w.zero_grad();
    for (const Tensor& b : biases) b.zero_grad();
  };

  const Tensor row = Tensor::ones({1, 4}), column = Tensor::ones({4, 1}), square = Tensor::ones({4, 4}),
               vector = Tensor::ones({4});
  const Kernel product = kernel_of([&] { matmul(row, square); }), plus = kernel_of([&] { add(row, vector); }),
               activation = kernel_of([&] { relu(row); }), average = kernel_of([&] { mean(row); }),
               outer = kernel_of([&] { matmul(column, row); }), columns = kernel_of([&] { sum(row, {0}); });
  const auto kernels = [&] {
    for (int i = 0; i < layers; ++i) {  // forward
      product.run();
      plus.run();
      if (i + 1 < layers) activation.run();
    }
    average.run();
    activation.run();  // backward: of the mean, then per layer dW, db, and dX with the mask below it
    for (int i = 0; i < layers; ++i) {
      outer.run();
      columns.run();
      if (i + 1 < layers) {
        product.run();
        activation.run();
      }
    }
  };

  for (int i = 0; i < 100; ++i) step();
  const auto before = memory::report().system_allocations;
  for (int i = 0; i < 1000; ++i) step();
  const auto allocations = memory::report().system_allocations - before;
  const double whole = nanoseconds(step, rounds), by_hand = nanoseconds(kernels, rounds);
  std::printf("{\"step_ns\": %.0f, \"kernels_ns\": %.0f, \"beyond_kernel_ns_per_op\": %.1f, \"allocations\": %llu}\n",
              whole, by_hand, (whole - by_hand) / 12, static_cast<unsigned long long>(allocations));
}
