#include "kernels/binary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::Binary;
using kernels::broadcast_plan;
using kernels::Comparison;
using kernels::Ternary;

const float nan = std::numeric_limits<float>::quiet_NaN();
constexpr Binary all_ops[] = {Binary::add,    Binary::subtract, Binary::multiply,
                              Binary::divide, Binary::maximum,  Binary::minimum};

template <class T>
std::vector<T> draws(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> step(-400, 400);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) {
    const int draw = step(engine);
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(draw);
    } else {
      v = narrow<T>(static_cast<float>(draw == 0 ? 1 : draw) / 128);
    }
  }
  return values;
}

template <class V>
V value_of(Binary op, V a, V b) {
  switch (op) {
    case Binary::add: return static_cast<V>(a + b);
    case Binary::subtract: return static_cast<V>(a - b);
    case Binary::multiply: return static_cast<V>(a * b);
    case Binary::divide: return static_cast<V>(a / b);
    case Binary::maximum: return a < b ? b : a;
    case Binary::minimum: return b < a ? b : a;
  }
  return a;
}

// Index of an operand's element for element i of the result, the plain way.
std::size_t source(const Shape& result, const Shape& shape, std::int64_t i) {
  std::int64_t index = 0, stride = 1;
  for (std::int64_t d = 1; d <= result.rank(); ++d) {
    const std::int64_t at = i % result[-d];
    i /= result[-d];
    if (d > shape.rank()) continue;
    if (shape[-d] != 1) index += at * stride;
    stride *= shape[-d];
  }
  return static_cast<std::size_t>(index);
}

struct Shapes {
  Shape result, a, b;
};
std::vector<Shapes> shapes() {
  return {{{}, {}, {}},
          {{7}, {7}, {7}},
          {{7}, {7}, {}},
          {{7}, {1}, {7}},
          {{5, 33}, {5, 33}, {33}},
          {{5, 33}, {33}, {5, 33}},
          {{5, 33}, {5, 33}, {5, 1}},
          {{5, 33}, {5, 1}, {1, 33}},
          {{5, 33}, {5, 33}, {}},
          {{2, 3, 4, 5}, {2, 1, 4, 1}, {3, 1, 5}},
          {{2, 3, 4, 5}, {2, 3, 1, 1}, {2, 3, 4, 5}},
          {{3, 1, 2}, {3, 1, 1}, {1, 1, 2}},
          {{0, 3}, {0, 3}, {3}},
          {{300, 257}, {300, 257}, {257}},
          {{2, 2, 2, 2, 2, 2, 2, 3}, {2, 1, 2, 1, 2, 1, 2, 1}, {1, 2, 1, 2, 1, 2, 1, 3}}};
}

template <class T>
void agrees_with_plain_loops() {
  for (const Shapes& s : shapes())
    for (const Binary op : all_ops) {
      if (op == Binary::divide && std::is_integral_v<T>) continue;
      const auto a = draws<T>(s.a.elements(), 1), b = draws<T>(s.b.elements(), 2);
      std::vector<T> out(static_cast<std::size_t>(s.result.elements()));
      kernels::binary(op, dtype_v<T>, broadcast_plan<2>(s.result, {&s.a, &s.b}), a.data(), b.data(), out.data());
      for (std::int64_t i = 0; i < s.result.elements(); ++i) {
        const auto x = widen(a[source(s.result, s.a, i)]), y = widen(b[source(s.result, s.b, i)]);
        const T want = narrow<T>(value_of(op, x, y)), got = out[static_cast<std::size_t>(i)];
        ASSERT_EQ(std::memcmp(&want, &got, sizeof(T)), 0)
            << to_string(s.a) << " with " << to_string(s.b) << ", op " << static_cast<int>(op) << ", element " << i;
      }
    }
}

TEST(Binary, AgreesWithPlainLoops) {
  for_each_target([] {
    agrees_with_plain_loops<float>();
    agrees_with_plain_loops<double>();
    agrees_with_plain_loops<Float16>();
    agrees_with_plain_loops<BFloat16>();
    agrees_with_plain_loops<std::int64_t>();
    agrees_with_plain_loops<std::int32_t>();
    agrees_with_plain_loops<std::uint8_t>();
  });
}

TEST(Binary, PlansMergeDimensions) {
  const Shape whole{2, 3, 4}, row{4}, column{2, 3, 1};
  EXPECT_EQ(broadcast_plan<2>(whole, {&whole, &whole}).rank, 1);
  EXPECT_EQ(broadcast_plan<2>(whole, {&whole, &row}).rank, 2);
  EXPECT_EQ(broadcast_plan<2>(whole, {&whole, &row}).size[0], 6);
  EXPECT_EQ(broadcast_plan<2>(whole, {&whole, &column}).rank, 2);
  EXPECT_EQ(broadcast_plan<2>(whole, {&column, &row}).rank, 2);
}

template <class T>
void same_bits_everywhere() {
  const auto a = draws<T>(64, 3), b = draws<T>(64, 4);
  for (const Binary op : all_ops) {
    if (op == Binary::divide && std::is_integral_v<T>) continue;
    const Shape whole{64};
    std::vector<T> all(64);
    kernels::binary(op, dtype_v<T>, broadcast_plan<2>(whole, {&whole, &whole}), a.data(), b.data(), all.data());
    for (std::ptrdiff_t offset = 0; offset < 18; ++offset)
      for (std::ptrdiff_t n = 1; n < 40; n += n < 20 ? 1 : 7) {
        const Shape shape{n};
        const std::vector<T> part_a(a.begin() + offset, a.begin() + offset + n);
        const std::vector<T> part_b(b.begin() + offset, b.begin() + offset + n);
        std::vector<T> out(static_cast<std::size_t>(n));
        kernels::binary(op, dtype_v<T>, broadcast_plan<2>(shape, {&shape, &shape}), part_a.data(), part_b.data(),
                        out.data());
        ASSERT_EQ(std::memcmp(out.data(), all.data() + offset, out.size() * sizeof(T)), 0);
      }
  }
}

TEST(Binary, SameBitsWhereverAnElementLies) {
  for_each_target([] {
    same_bits_everywhere<float>();
    same_bits_everywhere<double>();
    same_bits_everywhere<Float16>();
    same_bits_everywhere<BFloat16>();
  });
}

TEST(Binary, SameBitsForAnyThreads) {
  const Shape whole{301, 257}, row{257};
  const auto a = draws<float>(whole.elements(), 5), b = draws<float>(257, 6);
  std::vector<float> out[2];
  for (int threads = 1; threads <= 2; ++threads) {
    const ThreadLimit limit(threads);
    out[threads - 1].resize(a.size());
    kernels::binary(Binary::divide, float32, broadcast_plan<2>(whole, {&whole, &row}), a.data(), b.data(),
                    out[threads - 1].data());
  }
  EXPECT_EQ(out[0], out[1]);
}

TEST(Binary, NaNWinsInMaximumAndMinimum) {
  for_each_target([] {
    const Shape shape{17};
    const std::vector<float> one(17, 1.0f), none(17, nan);
    std::vector<float> out(17);
    for (const Binary op : {Binary::maximum, Binary::minimum})
      for (const bool first : {true, false}) {
        kernels::binary(op, float32, broadcast_plan<2>(shape, {&shape, &shape}), first ? none.data() : one.data(),
                        first ? one.data() : none.data(), out.data());
        for (const float v : out) EXPECT_TRUE(std::isnan(v));
      }
  });
}

TEST(Binary, BooleansAreOrAndAnd) {
  const bool a[] = {false, false, true, true}, b[] = {false, true, false, true};
  bool out[4];
  const Shape shape{4};
  const auto plan = broadcast_plan<2>(shape, {&shape, &shape});
  kernels::binary(Binary::add, boolean, plan, a, b, out);
  EXPECT_TRUE(!out[0] && out[1] && out[2] && out[3]);
  kernels::binary(Binary::multiply, boolean, plan, a, b, out);
  EXPECT_TRUE(!out[0] && !out[1] && !out[2] && out[3]);
}

TEST(Binary, IntegersWrap) {
  const std::int32_t a[] = {std::numeric_limits<std::int32_t>::max(), 65536}, b[] = {1, 65536};
  std::int32_t out[2];
  const Shape shape{2};
  const auto plan = broadcast_plan<2>(shape, {&shape, &shape});
  kernels::binary(Binary::add, int32, plan, a, b, out);
  EXPECT_EQ(out[0], std::numeric_limits<std::int32_t>::min());
  kernels::binary(Binary::multiply, int32, plan, a, b, out);
  EXPECT_EQ(out[1], 0);
}

template <class T>
void compares() {
  const Shape whole{5, 33}, row{33};
  auto a = draws<T>(whole.elements(), 7);
  const auto b = draws<T>(33, 8);
  for (std::size_t i = 0; i < 33; i += 3) a[i] = b[i];
  const auto out = std::make_unique<bool[]>(a.size());
  for (const Comparison op : {Comparison::equal, Comparison::not_equal, Comparison::less, Comparison::less_equal}) {
    kernels::compare(op, dtype_v<T>, broadcast_plan<2>(whole, {&whole, &row}), a.data(), b.data(), out.get());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = widen(a[i]), y = widen(b[i % 33]);
      const bool want = op == Comparison::equal       ? x == y
                        : op == Comparison::not_equal ? x != y
                        : op == Comparison::less      ? x < y
                                                      : x <= y;
      EXPECT_EQ(out[i], want);
    }
  }
}

TEST(Binary, Compares) {
  compares<float>();
  compares<double>();
  compares<Float16>();
  compares<BFloat16>();
  compares<std::int64_t>();
  compares<std::int32_t>();
  compares<std::uint8_t>();
  const float x[] = {nan};
  bool out;
  const Shape one{1};
  for (const Comparison op : {Comparison::equal, Comparison::not_equal, Comparison::less, Comparison::less_equal}) {
    kernels::compare(op, float32, broadcast_plan<2>(one, {&one, &one}), x, x, &out);
    EXPECT_EQ(out, op == Comparison::not_equal);
  }
}

template <class T>
void ternaries() {
  const Shape result{4, 3, 21}, a_shape{4, 3, 21}, b_shape{3, 1}, c_shape{4, 1, 21};
  const auto a = draws<T>(a_shape.elements(), 9), b = draws<T>(3, 10);
  auto c = draws<T>(c_shape.elements(), 11);
  c[0] = b[0];  // a tie
  std::vector<T> out(a.size());
  for (const Ternary op : {Ternary::divisor_gradient, Ternary::larger_gradient, Ternary::smaller_gradient}) {
    kernels::ternary(op, dtype_v<T>, broadcast_plan<3>(result, {&a_shape, &b_shape, &c_shape}), a.data(), b.data(),
                     c.data(), out.data());
    for (std::int64_t i = 0; i < result.elements(); ++i) {
      const auto x = widen(a[static_cast<std::size_t>(i)]), y = widen(b[source(result, b_shape, i)]),
                 z = widen(c[source(result, c_shape, i)]);
      using V = std::remove_cv_t<decltype(x)>;
      const bool larger = op == Ternary::larger_gradient;
      const V share = y == z ? V{0.5} : (larger ? y > z : y < z) ? V{1} : V{0};
      const T want = narrow<T>(op == Ternary::divisor_gradient ? -(x / z * y) : share == 0 ? V{0} : x * share);
      const T got = out[static_cast<std::size_t>(i)];
      ASSERT_EQ(std::memcmp(&want, &got, sizeof(T)), 0) << static_cast<int>(op) << ", element " << i;
    }
  }
}

TEST(Binary, GradientsOfThreeOperands) {
  for_each_target([] {
    ternaries<float>();
    ternaries<double>();
    ternaries<Float16>();
    ternaries<BFloat16>();
  });
}

TEST(Binary, SelectTakesEitherSide) {
  const Shape result{3, 4}, column{3, 1}, row{4};
  const bool condition[] = {true, false, true};
  const std::int64_t a[] = {1, 2, 3, 4};
  const std::int64_t b[] = {-1};
  const Shape scalar{};
  std::int64_t out[12];
  kernels::select(8, broadcast_plan<3>(result, {&column, &row, &scalar}), condition, a, b, out);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(out[i], condition[i / 4] ? a[i % 4] : -1);
  std::uint16_t halves[12];
  const std::uint16_t x[] = {5, 6, 7, 8}, y[] = {9};
  kernels::select(2, broadcast_plan<3>(result, {&column, &row, &scalar}), condition, x, y, halves);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(halves[i], condition[i / 4] ? x[i % 4] : 9);
}

}  // namespace
}  // namespace everyo
