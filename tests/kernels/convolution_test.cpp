#include "kernels/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/convolution_cases.h"
#include "kernels/each_target.h"

namespace everyo::kernels {
namespace {

struct Sums {
  std::vector<double> values, magnitudes;  // the sum of absolute products, which bounds the rounding
  explicit Sums(std::int64_t n) : values(static_cast<std::size_t>(n)), magnitudes(static_cast<std::size_t>(n)) {}
  void add(std::int64_t at, double a, double b) {
    values[static_cast<std::size_t>(at)] += a * b;
    magnitudes[static_cast<std::size_t>(at)] += std::abs(a * b);
  }
};

// Calls f(x element, weight element, y element) for every product of the convolution.
template <class F>
void for_each_product(const ConvolutionProblem& p, F&& f) {
  const std::int64_t c = p.channels / p.groups, o = p.outputs / p.groups;
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t row = 0; row < p.height.output; ++row)
      for (std::int64_t column = 0; column < p.width.output; ++column)
        for (std::int64_t i = 0; i < p.height.window; ++i)
          for (std::int64_t j = 0; j < p.width.window; ++j) {
            const std::int64_t h = row * p.height.stride + i * p.height.dilation - p.height.before;
            const std::int64_t w = column * p.width.stride + j * p.width.dilation - p.width.before;
            if (h < 0 || h >= p.height.input || w < 0 || w >= p.width.input) continue;
            for (std::int64_t k = 0; k < p.outputs; ++k)
              for (std::int64_t d = 0; d < c; ++d)
                f(((n * p.height.input + h) * p.width.input + w) * p.channels + k / o * c + d,
                  ((i * p.width.window + j) * c + d) * p.outputs + k,
                  ((n * p.height.output + row) * p.width.output + column) * p.outputs + k);
          }
}

template <class T>
void expect_near(const char* what, const std::vector<T>& got, const Sums& want, double bias_unit = 0) {
  // Up to 8192 roundings of half a unit, which add up as their root does: 45 units of the sum of magnitudes; halves are
  // summed in float32. One rounding on store, by half a unit.
  const double wide = std::is_same_v<T, double> ? finfo(float64).eps : finfo(float32).eps;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(real(got[i]), want.values[i],
                64 * wide * (want.magnitudes[i] + bias_unit) + finfo(dtype_v<T>).eps / 2 * std::abs(want.values[i]))
        << what << " at " << i;
}

template <class T>
void check(const ConvolutionProblem& p) {
  SCOPED_TRACE(testing::Message() << name_of(dtype_v<T>) << " images " << p.images << ", " << p.height.input << "x"
                                  << p.width.input << "x" << p.channels << " -> " << p.outputs << ", groups "
                                  << p.groups << ", window " << p.height.window << "x" << p.width.window);
  const Operands<T> in(p);
  Sums y(p.images * p.result_size()), grad_x(p.images * p.image_size()), grad_weight(p.weight_size());
  for_each_product(p, [&](std::int64_t x, std::int64_t w, std::int64_t at) {
    const auto xi = static_cast<std::size_t>(x), wi = static_cast<std::size_t>(w), yi = static_cast<std::size_t>(at);
    y.add(at, real(in.x[xi]), real(in.weight[wi]));
    grad_x.add(x, real(in.weight[wi]), real(in.dy[yi]));
    grad_weight.add(w, real(in.x[xi]), real(in.dy[yi]));
  });
  const Results<T> plain = run(p, in, false, false), full = run(p, in, true, true);
  expect_near("y", plain.y, y);
  expect_near("grad_x", plain.grad_x, grad_x);
  expect_near("grad_weight", plain.grad_weight, grad_weight);
  for (std::size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = std::max(0.0, y.values[i] + real(in.bias[i % in.bias.size()]));
  expect_near("relu(y + bias)", full.y, y, 1);
  // Added to what is there: as a separate addition does.
  std::vector<T> twice = plain.grad_weight;
  ConvolutionProblem typed = p;
  typed.dtype = dtype_v<T>;
  convolution_weight_gradient(typed, in.x.data(), in.dy.data(), twice.data(), true);
  for (std::size_t i = 0; i < twice.size(); ++i) ASSERT_EQ(real(twice[i]), 2 * real(plain.grad_weight[i]));
}

// Every kind of window and channel count that oneDNN has kernels of its own for, and odd ones.
std::vector<ConvolutionProblem> problems() {
  return {
      problem(1, 1, 1, axis(1, 1), axis(1, 1)),
      problem(2, 1, 8, axis(8, 3, 1, 1, 1, 1), axis(8, 3, 1, 1, 1, 1)),
      problem(3, 3, 32, axis(9, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)),
      problem(7, 16, 32, axis(6, 3), axis(5, 3)),
      problem(2, 17, 13, axis(5, 1), axis(4, 1)),
      problem(2, 32, 64, axis(5, 1, 2), axis(7, 1, 3)),
      problem(2, 5, 6, axis(9, 2, 2, 1, 0, 1), axis(8, 3, 3, 1, 2, 0)),
      problem(1, 4, 8, axis(11, 3, 1, 2, 2, 2), axis(13, 3, 2, 3, 3, 1)),
      problem(3, 8, 12, axis(7, 3, 1, 1, 1, 1), axis(6, 2, 1, 1, 0, 1), 4),
      problem(2, 32, 32, axis(7, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1), 32),
      problem(2, 6, 12, axis(7, 3, 2, 1, 1, 1), axis(6, 3, 2, 1, 1, 1), 6),
      problem(2, 16, 16, axis(7, 5, 1, 1, 2, 2), axis(9, 7, 1, 1, 3, 3)),
      // With more channels than small_convolution takes.
      problem(2, 1, 40, axis(8, 3, 1, 1, 1, 1), axis(8, 3, 1, 1, 1, 1)),
      problem(3, 35, 33, axis(9, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)),
      problem(2, 40, 40, axis(9, 2, 2, 1, 0, 1), axis(8, 3, 3, 1, 2, 0)),
      problem(1, 36, 40, axis(11, 3, 1, 2, 2, 2), axis(13, 3, 2, 3, 3, 1)),
      problem(2, 34, 36, axis(7, 5, 1, 1, 2, 2), axis(9, 7, 1, 1, 3, 3)),
      problem(2, 33, 34, axis(2, 2, 1, 1, 3, 3), axis(3, 2, 1, 1, 2, 2)),
      problem(1, 64, 64, axis(5, 1), axis(4, 1)),
      problem(3, 66, 34, axis(5, 3, 1, 1, 1, 1), axis(6, 3, 2, 1, 1, 1), 2),
      problem(3, 3, 33, axis(9, 5, 2, 1, 2, 2), axis(9, 3, 2, 1, 1, 1)),
      // One row of windows that see padding only.
      problem(2, 2, 3, axis(2, 2, 1, 1, 3, 3), axis(3, 2, 1, 1, 2, 2)),
  };
}

template <class T>
class Convolution : public testing::Test {};
using Elements = testing::Types<float, double, Float16, BFloat16>;
struct ElementName {
  template <class T>
  static std::string GetName(int) {
    return std::string(name_of(dtype_v<T>));
  }
};
TYPED_TEST_SUITE(Convolution, Elements, ElementName);

TYPED_TEST(Convolution, AgreesWithFloat64SumsInEveryForm) {
  for_each_target([] {
    for (const ConvolutionProblem& p : problems()) check<TypeParam>(p);
  });
}

TYPED_TEST(Convolution, TakesBatchesOfManyChunksAndALastSmallerOne) {
  // 104 kB an image: 7 to a chunk.
  for (const std::int64_t images : {8, 23})
    check<TypeParam>(problem(images, 5, 8, axis(32, 3, 2, 1, 1, 1), axis(33, 3, 2, 1, 1, 1)));
}

TYPED_TEST(Convolution, GivesTheSameBitsForAnyThreads) {
  using T = TypeParam;
  const ConvolutionProblem large[] = {problem(13, 32, 24, axis(32, 3, 1, 1, 1, 1), axis(31, 3, 1, 1, 1, 1)),
                                      problem(40, 16, 16, axis(16, 3, 2), axis(16, 3, 1, 1, 0, 1), 16),
                                      problem(33, 3, 16, axis(24, 3), axis(24, 3))};
  for (const ConvolutionProblem& p : large) {
    const Operands<T> in(p);
    const auto with = [&](int threads) {
      const ThreadLimit limit(threads);
      return run(p, in, true, true);
    };
    const Results<T> one = with(1);
    for (const int threads : {1, 2, 3, 8}) EXPECT_EQ(with(threads), one) << p.images << ", " << threads << " threads";
  }
}

TYPED_TEST(Convolution, GivesTheSameBitsForAnyAlignment) {
  using T = TypeParam;
  ConvolutionProblem p = problem(5, 16, 32, axis(9, 3, 1, 1, 1, 1), axis(8, 3, 1, 1, 1, 1));
  p.dtype = dtype_v<T>;
  const Operands<T> in(p);
  const Results<T> first = run(p, in, true, true);
  for (const std::size_t offset : {1u, 3u}) {
    Operands<T> moved = in;
    for (auto* operand : {&moved.x, &moved.weight, &moved.bias, &moved.dy})
      operand->insert(operand->begin(), offset, T{});
    std::vector<T> y(first.y.size() + offset), grad_x(first.grad_x.size() + offset),
        grad_weight(first.grad_weight.size() + offset);
    const auto at = [&](std::vector<T>& v) { return v.data() + offset; };
    convolution(p, at(moved.x), at(moved.weight), at(moved.bias), true, at(y));
    convolution_data_gradient(p, at(moved.weight), at(moved.dy), at(grad_x));
    convolution_weight_gradient(p, at(moved.x), at(moved.dy), at(grad_weight), false);
    for (auto* result : {&y, &grad_x, &grad_weight})
      result->erase(result->begin(), result->begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_EQ((Results<T>{y, grad_x, grad_weight}), first) << offset;
  }
}

TYPED_TEST(Convolution, OfNothingIsTheBiasAndItsGradientsAreZero) {
  using T = TypeParam;
  const auto expect_all = [](const std::vector<T>& values, double want) {
    for (const T& v : values) ASSERT_EQ(real(v), want);
  };
  const ConvolutionProblem none = problem(0, 2, 3, axis(4, 3), axis(4, 3));
  const Results<T> empty = run(none, Operands<T>(none), true, true);
  EXPECT_EQ(empty.y.size() + empty.grad_x.size(), 0u);
  expect_all(empty.grad_weight, 0);
  // No output positions; no channels; an image of padding only.
  ConvolutionProblem flat = problem(2, 2, 3, axis(4, 3), axis(4, 3));
  flat.height.output = 0;
  const Results<T> nowhere = run(flat, Operands<T>(flat), true, true);
  EXPECT_EQ(nowhere.y.size(), 0u);
  expect_all(nowhere.grad_x, 0);
  expect_all(nowhere.grad_weight, 0);
  for (const ConvolutionProblem& p :
       {problem(2, 0, 2, axis(4, 3), axis(4, 3)), problem(2, 2, 2, axis(0, 2, 1, 1, 1, 1), axis(4, 3))}) {
    Operands<T> in(p);
    in.bias = {narrow<T>(-1.5f), narrow<T>(2.0f)};
    const std::vector<T> y = run(p, in, true, true).y;
    ASSERT_FALSE(y.empty());
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(real(y[i]), i % 2 == 0 ? 0 : 2);
    expect_all(run(p, in, false, false).y, 0);
  }
}

}  // namespace
}  // namespace everyo::kernels
