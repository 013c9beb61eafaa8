#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"

namespace everyo {
namespace {

using kernels::axis_bit;
using kernels::AxisSet;
using kernels::reduce_layout;
using kernels::ReduceKind;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
std::vector<T> draws(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-4, 4);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>(static_cast<float>(uniform(engine)));
  return values;
}

template <class T, class Out = T>
std::vector<Out> reduced(ReduceKind kind, const Shape& shape, AxisSet axes, const T* x) {
  const auto layout = reduce_layout(shape, axes);
  std::vector<Out> out(static_cast<std::size_t>(layout.outputs));
  kernels::reduce(kind, layout, dtype_v<T>, x, dtype_v<Out>, out.data());
  return out;
}

// The plain way: walk every element, find its output by the kept coordinates, accumulate in long double.
template <class T>
std::vector<long double> reference(ReduceKind kind, const Shape& shape, AxisSet axes, const std::vector<T>& x) {
  std::int64_t outputs = 1, elements = 1;
  for (std::int64_t d = 0; d < shape.rank(); ++d) ((axes & axis_bit(d)) != 0 ? elements : outputs) *= shape[d];
  const long double start = kind == ReduceKind::max ? -infinity : kind == ReduceKind::min ? infinity : 0;
  std::vector<long double> out(static_cast<std::size_t>(outputs), start);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), index = 0, scale = 1;
    for (std::int64_t d = shape.rank() - 1; d >= 0; --d) {
      if ((axes & axis_bit(d)) == 0) index += rest % shape[d] * scale, scale *= shape[d];
      rest /= shape[d];
    }
    const long double value = static_cast<long double>(widen(x[i]));
    long double& o = out[static_cast<std::size_t>(index)];
    if (kind == ReduceKind::max)
      o = std::max(o, value);
    else if (kind == ReduceKind::min)
      o = std::min(o, value);
    else
      o += value;
  }
  if (kind == ReduceKind::mean)
    for (auto& o : out) o /= static_cast<long double>(elements);
  return out;
}

template <class T>
class ReduceFloating : public testing::Test {};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(ReduceFloating, FloatingTypes);

TYPED_TEST(ReduceFloating, AnyAxesAgreeWithThePlainSum) {
  using T = TypeParam;
  // One rounding to T of a float64 sum; cancellation leaves float64's own error, far below T's except for float64.
  const double relative = std::is_same_v<T, double>  ? 1e-13
                          : std::is_same_v<T, float> ? 6e-8
                                                     : finfo(dtype_v<T>).eps / 2;
  const Shape shapes[] = {{7},        {1},     {2, 3},     {5, 1, 70},    {33, 65},     {3, 4, 5, 6}, {2, 40, 3, 17},
                          {300, 257}, {70000}, {40000, 3}, {2, 3, 30000}, {200, 30, 40}};
  for (const Shape& shape : shapes) {
    const auto x = draws<T>(shape.elements(), 7);
    for (AxisSet axes = 0; axes < axis_bit(shape.rank()); ++axes) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max, ReduceKind::min}) {
        const auto out = reduced(kind, shape, axes, x.data());
        const auto want = reference(kind, shape, axes, x);
        ASSERT_EQ(out.size(), want.size());
        for (std::size_t i = 0; i < out.size(); ++i) {
          const double w = static_cast<double>(want[i]);
          ASSERT_NEAR(static_cast<double>(widen(out[i])), w, relative * std::abs(w) + 1e-12)
              << to_string(shape) << " axes " << axes << " kind " << static_cast<int>(kind) << " output " << i;
        }
      }
    }
  }
}

TYPED_TEST(ReduceFloating, SameBitsForAnyThreadsAndOffset) {
  using T = TypeParam;
  const Shape shapes[] = {{300001}, {1000, 100}, {3, 50001}, {50001, 3}, {7, 100, 131}, {64, 2000}};
  for (const Shape& shape : shapes) {
    const auto x = draws<T>(shape.elements() + 16, 3);
    for (AxisSet axes = 1; axes < axis_bit(shape.rank()); ++axes) {
      std::vector<T> first;
      for (const int threads : {1, 2, 3}) {
        const ThreadLimit limit(threads);
        std::vector<T> moved(x.begin(), x.end());
        for (const std::int64_t offset : {0, 1, 7}) {
          std::copy(x.begin(), x.begin() + shape.elements(), moved.begin() + offset);
          const auto out = reduced(ReduceKind::sum, shape, axes, moved.data() + offset);
          if (first.empty()) first = out;
          ASSERT_EQ(0, std::memcmp(first.data(), out.data(), out.size() * sizeof(T)))
              << to_string(shape) << " " << axes;
        }
      }
    }
  }
}

TYPED_TEST(ReduceFloating, NaNWinsInMaxAndMin) {
  using T = TypeParam;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::int64_t count : {1, 5, 31, 32, 77, 70000}) {
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      auto x = draws<T>(count, 5);
      x[static_cast<std::size_t>(at)] = narrow<T>(nan);
      for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
        EXPECT_TRUE(std::isnan(widen(reduced(kind, {count}, 1, x.data())[0])));
        EXPECT_TRUE(std::isnan(widen(reduced(kind, {count, 1, 1}, 1, x.data())[0])));
      }
    }
  }
  const T infinities[] = {narrow<T>(-infinity), narrow<T>(-infinity)};
  EXPECT_EQ(widen(reduced(ReduceKind::max, {2}, 1, infinities)[0]), -infinity);
}

// numerics N06: a float16 sum of 4096 ones is 2048 elsewhere, a bfloat16 one 256.
TEST(Reduce, N06_HalfSumsDoNotStall) {
  const std::vector<Float16> ones(4096, to_float16(1));
  EXPECT_EQ(to_float(reduced(ReduceKind::sum, {4096}, 1, ones.data())[0]), 4096);
  EXPECT_EQ(to_float(reduced(ReduceKind::mean, {4096}, 1, ones.data())[0]), 1);
  EXPECT_EQ(to_float(reduced(ReduceKind::sum, {4096, 1}, 1, ones.data())[0]), 4096);
  const std::vector<BFloat16> more(4096, to_bfloat16(1));
  EXPECT_EQ(to_float(reduced(ReduceKind::sum, {4096}, 1, more.data())[0]), 4096);
  EXPECT_EQ(to_float(reduced(ReduceKind::mean, {64, 64}, 1, more.data())[5]), 1);
}

// numerics N09: the count of elements is beyond float16's range, their mean is not.
TEST(Reduce, N09_HalfMeanOfMoreElementsThanFloat16Counts) {
  const std::vector<Float16> x(70000, to_float16(1.5f));
  EXPECT_EQ(to_float(reduced(ReduceKind::mean, {70000}, 1, x.data())[0]), 1.5f);
  EXPECT_EQ(to_float(reduced(ReduceKind::mean, {70000, 1}, 1, x.data())[0]), 1.5f);
}

// numerics N12: 10,000 uniform bfloat16 numbers sum to about 5,000, not 256.
TEST(Reduce, N12_Bfloat16SumOfUniforms) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<BFloat16> x(10000);
  double want = 0;
  for (auto& v : x) v = to_bfloat16(uniform(engine)), want += static_cast<double>(to_float(v));
  EXPECT_NEAR(want, 5000, 150);  // five standard deviations of the draw
  EXPECT_EQ(reduced(ReduceKind::sum, {10000}, 1, x.data())[0], narrow<BFloat16>(want));
}

TEST(Reduce, IntegersSumToInt64AndKeepTheirTypeInMax) {
  const std::vector<std::int32_t> big(4, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ((reduced<std::int32_t, std::int64_t>(ReduceKind::sum, {4}, 1, big.data())[0]), 8589934588);
  const std::uint8_t bytes[] = {200, 100, 7, 255, 0, 9};
  EXPECT_EQ((reduced<std::uint8_t, std::int64_t>(ReduceKind::sum, {2, 3}, 2, bytes)),
            (std::vector<std::int64_t>{307, 264}));
  EXPECT_EQ((reduced<std::uint8_t, std::int64_t>(ReduceKind::sum, {2, 3}, 1, bytes)),
            (std::vector<std::int64_t>{455, 100, 16}));
  EXPECT_EQ(reduced(ReduceKind::max, {2, 3}, 2, bytes), (std::vector<std::uint8_t>{200, 255}));
  EXPECT_EQ(reduced(ReduceKind::min, {2, 3}, 1, bytes), (std::vector<std::uint8_t>{200, 0, 7}));
  const bool flags[] = {true, false, true};
  std::int64_t count = 0;
  kernels::reduce(ReduceKind::sum, reduce_layout({3}, 1), boolean, flags, int64, &count);
  EXPECT_EQ(count, 2);
  std::vector<std::int64_t> large(100000);
  std::int64_t want = 0;
  for (std::size_t i = 0; i < large.size(); ++i) want += large[i] = static_cast<std::int64_t>(i * i);
  EXPECT_EQ(reduced(ReduceKind::sum, {100000}, 1, large.data())[0], want);
}

TEST(Reduce, NothingSumsToZeroAndHasNoMean) {
  const float unused = 0;
  EXPECT_EQ(reduced(ReduceKind::sum, {2, 0}, 2, &unused), (std::vector<float>{0, 0}));
  for (const float mean : reduced(ReduceKind::mean, {2, 0}, 2, &unused)) EXPECT_TRUE(std::isnan(mean));
  EXPECT_TRUE(reduced(ReduceKind::sum, {0, 3}, 2, &unused).empty());
}

TEST(Reduce, HalfInputMayGiveFloat32) {
  const std::vector<Float16> x(300000, to_float16(1));
  EXPECT_EQ((reduced<Float16, float>(ReduceKind::sum, {300000}, 1, x.data())[0]), 300000);
}

TEST(Argmax, FirstOfEqualsAndFirstNaN) {
  const float x[] = {1, 3, 3, 0, /**/ 5, 2, NAN, NAN};
  std::int64_t out[4];
  kernels::argmax(float32, x, 2, 4, 1, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 2);
  kernels::argmax(float32, x, 1, 2, 4, out);  // down the columns of [2, 4]
  EXPECT_EQ((std::vector<std::int64_t>(out, out + 4)), (std::vector<std::int64_t>{1, 0, 1, 1}));
  const std::int32_t whole[] = {-4, -2, -9};
  kernels::argmax(int32, whole, 1, 3, 1, out);
  EXPECT_EQ(out[0], 1);
}

TEST(ReduceExtremeBackward, TiesShareTheGradient) {
  const float x[] = {1, 3, 3, 0, 2, 2, 2, -1}, output[] = {3, 2}, grad[] = {1, 6};
  float grad_x[8];
  kernels::reduce_extreme_backward(reduce_layout({2, 4}, 2), float32, x, output, grad, grad_x);
  EXPECT_EQ((std::vector<float>(grad_x, grad_x + 8)), (std::vector<float>{0, 0.5f, 0.5f, 0, 2, 2, 2, 0}));
  const float by_column[] = {2, 3, 3, 0}, ones[] = {1, 1, 1, 1};
  kernels::reduce_extreme_backward(reduce_layout({2, 4}, 1), float32, x, by_column, ones, grad_x);
  EXPECT_EQ((std::vector<float>(grad_x, grad_x + 8)), (std::vector<float>{0, 1, 1, 1, 1, 0, 0, 0}));
}

}  // namespace
}  // namespace everyo
