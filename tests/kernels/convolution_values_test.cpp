#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "everyo/isa.h"
#include "kernels/convolution_cases.h"
#include "kernels/vendor_convolution.h"

// Values that are not finite, and where halves round: small convolutions have a kernel of our own, larger ones
// oneDNN's, and halves there the processor's products or copies in float32.
namespace everyo::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

// 3 images; up to 16 channels are small; where they are odd, pairs of halves leave one over.
std::vector<ConvolutionProblem> problems(DType dtype) {
  std::vector<ConvolutionProblem> list;
  for (const std::int64_t channels : {1, 3, 16, 35, 64}) {
    const std::int64_t outputs = channels <= 16 ? 16 : channels + 2;
    list.push_back(problem(3, channels, outputs, axis(7, 3, 1, 1, 1, 1), axis(6, 3, 1, 1, 1, 1)));
    list.back().dtype = dtype;
  }
  return list;
}

template <class T>
class ConvolutionValues : public testing::Test {};
struct ElementName {
  template <class T>
  static std::string GetName(int) {
    return std::string(name_of(dtype_v<T>));
  }
};
using Elements = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(ConvolutionValues, Elements, ElementName);

// The windows around row 2, column 3 of the second image see it, and nothing else does.
bool sees(const ConvolutionProblem& p, std::int64_t element, std::int64_t channels) {
  const std::int64_t place = element / channels, column = place % 6, row = place / 6 % 7, image = place / 42;
  return image == p.images / 2 && std::abs(row - 2) <= 1 && std::abs(column - 3) <= 1;
}
constexpr std::int64_t place_of_it = 42 + 2 * 6 + 3;

// The first channel is beside the last of the place before it, with which a pair that is left over may meet.
TYPED_TEST(ConvolutionValues, NaNReachesTheResultsThatSeeItAndPassesReLU) {
  using T = TypeParam;
  for (const ConvolutionProblem& p : problems(dtype_v<T>)) {
    for (const std::int64_t channel : {std::int64_t{0}, p.channels - 1}) {
      Operands<T> in(p);
      in.x[static_cast<std::size_t>(place_of_it * p.channels + channel)] = narrow<T>(nan);
      const Results<T> got = run(p, in, true, true);
      for (std::size_t i = 0; i < got.y.size(); ++i)
        ASSERT_EQ(std::isnan(real(got.y[i])), sees(p, static_cast<std::int64_t>(i), p.outputs))
            << p.channels << " " << channel << " " << i;
      // The weight's gradient of that channel alone.
      for (std::size_t i = 0; i < got.grad_weight.size(); ++i)
        ASSERT_EQ(std::isnan(real(got.grad_weight[i])),
                  static_cast<std::int64_t>(i) / p.outputs % p.channels == channel)
            << p.channels << " " << channel << " " << i;
    }
  }
}

TYPED_TEST(ConvolutionValues, InfinityInAGradientReachesWhatItsWindowSaw) {
  using T = TypeParam;
  for (const ConvolutionProblem& p : problems(dtype_v<T>)) {
    for (const std::int64_t output : {std::int64_t{0}, p.outputs - 1}) {
      Operands<T> in(p);
      in.dy[static_cast<std::size_t>(place_of_it * p.outputs + output)] = narrow<T>(infinity);
      const Results<T> got = run(p, in, false, false);
      for (std::size_t i = 0; i < got.grad_x.size(); ++i)
        ASSERT_EQ(std::isfinite(real(got.grad_x[i])), !sees(p, static_cast<std::int64_t>(i), p.channels))
            << p.channels << " " << output << " " << i;
      for (std::size_t i = 0; i < got.grad_weight.size(); ++i)
        ASSERT_EQ(std::isfinite(real(got.grad_weight[i])), static_cast<std::int64_t>(i) % p.outputs != output)
            << p.channels << " " << output << " " << i;
    }
  }
}

// Windows of 3 by steps of 2 leave the last of 12 columns out, five to a row.
TYPED_TEST(ConvolutionValues, NaNThatNoWindowSeesReachesNothing) {
  using T = TypeParam;
  const ConvolutionProblem p = problem(2, 8, 34, axis(12, 3, 2), axis(12, 3, 2));
  Operands<T> in(p);
  for (std::size_t place = 11; place < in.x.size() / 8; place += 12)
    for (std::size_t channel = 0; channel < 8; ++channel) in.x[place * 8 + channel] = narrow<T>(nan);
  const Results<T> got = run(p, in, false, false);
  for (const T& v : got.y) ASSERT_TRUE(std::isfinite(real(v)));
  for (const T& v : got.grad_weight) ASSERT_TRUE(std::isfinite(real(v)));
}

TYPED_TEST(ConvolutionValues, ABatchOfOneAndOfNone) {
  using T = TypeParam;
  for (ConvolutionProblem p : problems(dtype_v<T>)) {
    const Operands<T> in(p);
    const Results<T> all = run(p, in, true, true);
    p.images = 1;
    const Results<T> one = run(p, in, true, true);
    // The first of three images and that image alone: sums have one order whatever the batch.
    for (std::size_t i = 0; i < one.y.size(); ++i) ASSERT_EQ(real(one.y[i]), real(all.y[i])) << p.channels << " " << i;
    for (std::size_t i = 0; i < one.grad_x.size(); ++i)
      ASSERT_EQ(real(one.grad_x[i]), real(all.grad_x[i])) << p.channels << " " << i;
    p.images = 0;
    const Results<T> none = run(p, in, true, true);
    EXPECT_TRUE(none.y.empty() && none.grad_x.empty());
    for (const T& value : none.grad_weight) ASSERT_EQ(real(value), 0);
  }
}

// Every sum has the last channel's product of one place in it, which is twice the largest finite value.
TYPED_TEST(ConvolutionValues, WhatOverflowsIsInfinite) {
  using T = TypeParam;
  if (!is_half(dtype_v<T>)) return;
  const auto half_of_largest = narrow<T>(static_cast<float>(finfo(dtype_v<T>).max) / 2), four = narrow<T>(4.0f);
  for (const ConvolutionProblem& p : problems(dtype_v<T>)) {
    Operands<T> in(p);
    const auto at = static_cast<std::size_t>(place_of_it);
    for (std::size_t c = 0, n = static_cast<std::size_t>(p.channels); c < n; ++c)
      in.x[at * n + c] = c + 1 == n ? half_of_largest : T{};
    for (std::size_t o = 0, n = static_cast<std::size_t>(p.outputs); o < n; ++o)
      in.dy[at * n + o] = o + 1 == n ? half_of_largest : T{};
    for (T& v : in.weight) v = four;
    const Results<T> got = run(p, in, false, false);
    for (std::size_t i = 0; i < got.y.size(); ++i)
      ASSERT_EQ(real(got.y[i]) == infinity, sees(p, static_cast<std::int64_t>(i), p.outputs)) << p.channels << " " << i;
    for (std::size_t i = 0; i < got.grad_x.size(); ++i)
      ASSERT_EQ(real(got.grad_x[i]) == infinity, sees(p, static_cast<std::int64_t>(i), p.channels))
          << p.channels << " " << i;
  }
}

// 2048 + 1 + 1 would stay 2048 in float16 steps.
TEST(ConvolutionOfHalves, AccumulatesInFloat32) {
  ConvolutionProblem p = problem(1, 3, 1, axis(1, 1), axis(1, 1));
  p.dtype = float16;
  const std::vector<Float16> x = {to_float16(2048), to_float16(1), to_float16(1)}, weight(3, to_float16(1));
  Float16 y{};
  convolution(p, x.data(), weight.data(), nullptr, false, &y);
  EXPECT_EQ(to_float(y), 2050.0f);
}

// On a processor that multiplies pairs of bfloat16 oneDNN has kernels for all that a net's larger layers are made of;
// the tests above would pass with copies in float32, too.
TEST(ConvolutionOfHalves, UsesTheProcessorsProductsWhereItHasThem) {
  for (const DType half : {float16, bfloat16}) {
    const bool expected = isa() >= (half == bfloat16 ? Isa::avx512_bf16 : Isa::avx512_fp16);
    for (const std::int64_t channels : {3, 64}) {
      for (const auto pass : {ConvolutionPass::forward, ConvolutionPass::data, ConvolutionPass::weight}) {
        ConvolutionProblem p = problem(2, channels, 64, axis(16, 3, 1, 1, 1, 1), axis(16, 3, 1, 1, 1, 1));
        p.dtype = half;
        if (half == float16 && expected) continue;  // as oneDNN's version has them
        EXPECT_EQ(multiplies_halves({pass, p}), expected) << name_of(half) << " " << channels;
      }
    }
  }
}

}  // namespace
}  // namespace everyo::kernels
