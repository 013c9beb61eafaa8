#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "everyo/half.h"
#include "kernels/convolution.h"
#include "kernels/draw.h"

// Operands and calls of convolutions that tests share.
namespace everyo::kernels {

template <class T>
double real(T value) {
  return static_cast<double>(widen(value));
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline ConvolutionAxis axis(std::int64_t input, std::int64_t window, std::int64_t stride = 1, std::int64_t dilation = 1,
                            std::int64_t before = 0, std::int64_t after = 0) {
  const std::int64_t extent = (window - 1) * dilation + 1;
  return {input, window, stride, dilation, before, after, (input + before + after - extent) / stride + 1};
}

inline ConvolutionProblem problem(std::int64_t images, std::int64_t channels, std::int64_t outputs,
                                  ConvolutionAxis height, ConvolutionAxis width, std::int64_t groups = 1) {
  return {float32, images, channels, outputs, groups, height, width};
}

template <class T>
struct Operands {
  std::vector<T> x, weight, bias, dy;
  explicit Operands(const ConvolutionProblem& p)
      : x(draw<T>(p.images * p.image_size(), 1)),
        weight(draw<T>(p.weight_size(), 2)),
        bias(draw<T>(p.outputs, 3)),
        dy(draw<T>(p.images * p.result_size(), 4)) {}
};
template <class T>
struct Results {
  std::vector<T> y, grad_x, grad_weight;
  friend bool operator==(const Results& a, const Results& b) {
    return same_bits(a.y, b.y) && same_bits(a.grad_x, b.grad_x) && same_bits(a.grad_weight, b.grad_weight);
  }
};

inline constexpr std::int64_t guard = 16;  // elements on both sides that must stay as they are

// Runs f(memory) on `count` elements between guards.
template <class T, class F>
std::vector<T> guarded(std::int64_t count, F&& f) {
  const T mark = narrow<T>(77.0f);
  std::vector<T> memory(static_cast<std::size_t>(count + 2 * guard), mark);
  f(memory.data() + guard);
  for (std::int64_t i = 0; i < guard; ++i) {
    EXPECT_EQ(real(memory[static_cast<std::size_t>(i)]), 77);
    EXPECT_EQ(real(memory[memory.size() - 1 - static_cast<std::size_t>(i)]), 77);
  }
  return {memory.begin() + guard, memory.end() - guard};
}

template <class T>
Results<T> run(ConvolutionProblem p, const Operands<T>& in, bool bias, bool relu) {
  p.dtype = dtype_v<T>;
  return {guarded<T>(
              p.images * p.result_size(),
              [&](T* y) { convolution(p, in.x.data(), in.weight.data(), bias ? in.bias.data() : nullptr, relu, y); }),
          guarded<T>(p.images * p.image_size(),
                     [&](T* grad) { convolution_data_gradient(p, in.weight.data(), in.dy.data(), grad); }),
          guarded<T>(p.weight_size(),
                     [&](T* grad) { convolution_weight_gradient(p, in.x.data(), in.dy.data(), grad, false); })};
}

}  // namespace everyo::kernels
