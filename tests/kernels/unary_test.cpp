#include "kernels/unary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/convert.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::Unary;
using kernels::UnaryParameters;

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::string name;
  Unary op;
  UnaryParameters parameters;
  bool positive;  // defined for x > 0 only
};
std::vector<Case> cases() {
  return {{"negative", Unary::negative, {}, false},
          {"absolute", Unary::absolute, {}, false},
          {"exp", Unary::exp, {}, false},
          {"log", Unary::log, {}, true},
          {"sqrt", Unary::sqrt, {}, true},
          {"relu", Unary::relu, {}, false},
          {"sigmoid", Unary::sigmoid, {}, false},
          {"tanh", Unary::tanh, {}, false},
          {"gelu", Unary::gelu, {}, false},
          {"gelu_tanh", Unary::gelu_tanh, {}, false},
          {"silu", Unary::silu, {}, false},
          {"clip", Unary::clip, {-0.75, 1.25}, false},
          {"power 2", Unary::power, {2, 0}, false},
          {"power 3", Unary::power, {3, 0}, false},
          {"power 0.5", Unary::power, {0.5, 0}, true},
          {"power -1", Unary::power, {-1, 0}, true},
          {"power 1.7", Unary::power, {1.7, 0}, true},
          {"power 0", Unary::power, {0, 0}, false},
          {"power 1", Unary::power, {1, 0}, false},
          {"scale", Unary::scale, {-1.5, 0.25}, false},
          {"scale only", Unary::scale, {2.5, 0}, false},
          {"reciprocal", Unary::reciprocal, {2.5, 0}, true}};
}

template <class T>
std::vector<T> forward(const Case& c, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  kernels::unary_forward(c.op, dtype_v<T>, x.data(), y.data(), static_cast<std::int64_t>(x.size()), c.parameters);
  return y;
}
template <class T>
std::vector<T> backward(const Case& c, const std::vector<T>& x, const std::vector<T>& grad) {
  const std::vector<T> saved = kernels::saves_output(c.op) ? forward(c, x) : x;
  std::vector<T> grad_x(x.size());
  kernels::unary_backward(c.op, dtype_v<T>, saved.data(), grad.data(), grad_x.data(),
                          static_cast<std::int64_t>(x.size()), c.parameters);
  return grad_x;
}
float at(Unary op, float x, UnaryParameters p = {}) {
  float y = 0;
  kernels::unary_forward(op, float32, &x, &y, 1, p);
  return y;
}

// Draws away from the corners of abs, relu and clip.
template <class T>
std::vector<T> draws(const Case& c, std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(c.positive ? 0.1 : -3.0, 3.0);
  std::vector<T> values(count);
  for (T& v : values) {
    double draw = uniform(engine);
    for (const double corner : {0.0, -0.75, 1.25})
      if (std::abs(draw - corner) < 1e-3) draw += 2e-3;
    v = narrow<T>(draw);
  }
  return values;
}

// Distance in units of the last place of the right float.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : infinity;
  const auto right = static_cast<float>(want);
  if (got == right) return 0;
  if (std::isinf(right) || std::isinf(got)) return infinity;
  const int exponent = std::max(std::ilogb(right == 0 ? 0x1p-149f : right), -126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

double reference(Unary op, double x) {
  switch (op) {
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::tanh: return std::tanh(x);
    case Unary::sigmoid: return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case Unary::silu: return x * reference(Unary::sigmoid, x);
    case Unary::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    default: return x * reference(Unary::sigmoid, 2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x));
  }
}

TEST(Unary, ErrorsOverAllOfFloat32) {
  // Every 4999th bit pattern: 859,000 values of every sign and exponent.
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4999)
    if (const float v = std::bit_cast<float>(static_cast<std::uint32_t>(bits)); std::isfinite(v)) x.push_back(v);
  const struct {
    Unary op;
    const char* name;
    double bound;  // measured: the larger of the target with FMA and the one without, rounded up
  } rows[] = {{Unary::exp, "exp", 1}, {Unary::log, "log", 1}, {Unary::tanh, "tanh", 2}, {Unary::sigmoid, "sigmoid", 2}};
  for_each_target([&] {
    for (const auto& row : rows) {
      const auto y = forward<float>({row.name, row.op, {}, false}, x);
      double worst = 0;
      float where = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (const double e = ulps(y[i], reference(row.op, static_cast<double>(x[i]))); e > worst)
          worst = e, where = x[i];
      EXPECT_LE(worst, row.bound) << row.name << " at " << where;
      testing::Test::RecordProperty(row.name, std::to_string(worst));
    }
  });
}

TEST(Unary, GatedActivationsAreAccurate) {
  // Relative to max(|y|, |x| 2^-24): the far negative tail, below the rounding of x itself, is worth less.
  for_each_target([] {
    for (const auto& [op, bound] : {std::pair(Unary::silu, 4.0), {Unary::gelu, 4.0}, {Unary::gelu_tanh, 4.0}}) {
      std::vector<float> x;
      for (float v = -16; v < 16; v += 0x1.37p-12f) x.push_back(v);
      const auto y = forward<float>({"", op, {}, false}, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double v = static_cast<double>(x[i]), want = reference(op, v);
        const double unit = std::max(std::abs(want), std::abs(v) * 0x1p-3) * 0x1p-23;
        ASSERT_LE(std::abs(static_cast<double>(y[i]) - want), bound * unit) << "at " << x[i];
      }
    }
  });
}

TEST(Unary, Limits) {
  for_each_target([] {
    EXPECT_EQ(at(Unary::exp, infinity), infinity);
    EXPECT_EQ(at(Unary::exp, -infinity), 0);
    EXPECT_EQ(at(Unary::exp, 800), infinity);
    EXPECT_EQ(at(Unary::exp, -800), 0);
    EXPECT_EQ(at(Unary::exp, 0), 1);
    EXPECT_TRUE(std::isfinite(at(Unary::exp, 88.72283f)));
    EXPECT_EQ(at(Unary::exp, 88.72284f), infinity);
    EXPECT_EQ(at(Unary::exp, -103.0f), 0x1p-149f);
    EXPECT_EQ(at(Unary::log, 0), -infinity);
    EXPECT_EQ(at(Unary::log, -0.0f), -infinity);
    EXPECT_EQ(at(Unary::log, 1), 0);
    EXPECT_EQ(at(Unary::log, infinity), infinity);
    EXPECT_TRUE(std::isnan(at(Unary::log, -1)));
    EXPECT_FLOAT_EQ(at(Unary::log, 0x1p-149f), -103.27893f);
    EXPECT_EQ(at(Unary::tanh, 800), 1);
    EXPECT_EQ(at(Unary::tanh, -infinity), -1);
    EXPECT_TRUE(std::signbit(at(Unary::tanh, -0.0f)));
    EXPECT_EQ(at(Unary::sigmoid, 800), 1);
    EXPECT_EQ(at(Unary::sigmoid, -800), 0);
    EXPECT_EQ(at(Unary::sigmoid, infinity), 1);
    EXPECT_EQ(at(Unary::sigmoid, -infinity), 0);
    EXPECT_EQ(at(Unary::sigmoid, 0), 0.5f);
    EXPECT_GT(at(Unary::sigmoid, -100), 0);
    for (const Unary op : {Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
      EXPECT_EQ(at(op, infinity), infinity);
      EXPECT_EQ(at(op, 800), 800);
      EXPECT_EQ(at(op, -infinity), 0);
      EXPECT_EQ(at(op, -800), 0);
      EXPECT_EQ(at(op, 0), 0);
    }
    EXPECT_EQ(at(Unary::relu, -3), 0);
    EXPECT_TRUE(std::signbit(at(Unary::scale, -0.0f, {2, 0})));
    EXPECT_FALSE(std::signbit(at(Unary::scale, 0.0f, {2, 0})));
    EXPECT_EQ(at(Unary::power, -2, {3, 0}), -8);
    EXPECT_EQ(at(Unary::power, 0, {0, 0}), 1);
    for (const Case& c : cases()) {
      if (c.name == "power 0") continue;
      EXPECT_TRUE(std::isnan(at(c.op, nan, c.parameters))) << c.name;
    }
  });
}

TEST(Unary, SlopesAtTheEdges) {
  for_each_target([] {
    const auto slope = [](Unary op, float x, UnaryParameters p = {}) {
      return backward<float>({"", op, p, false}, {x}, {2.0f})[0];
    };
    EXPECT_EQ(slope(Unary::relu, 0), 0);
    EXPECT_EQ(slope(Unary::absolute, 0), 0);
    EXPECT_EQ(slope(Unary::clip, -1, {-1, 1}), 2);
    EXPECT_EQ(slope(Unary::clip, 1, {-1, 1}), 2);
    EXPECT_EQ(slope(Unary::clip, 1.5f, {-1, 1}), 0);
    EXPECT_EQ(slope(Unary::sqrt, 0), 2e12f);
    EXPECT_EQ(slope(Unary::power, 0, {0, 0}), 0);
    EXPECT_EQ(slope(Unary::sigmoid, 800), 0);
    for (const Unary op : {Unary::gelu, Unary::gelu_tanh, Unary::silu})
      for (const float far : {800.0f, infinity}) {
        EXPECT_EQ(slope(op, far), 2) << far;
        EXPECT_EQ(slope(op, -far), 0) << far;
      }
  });
}

TEST(Unary, SlopesAreTheDerivatives) {
  for (const Case& c : cases()) {
    const auto x = draws<double>(c, 200, 5);
    const std::vector<double> grad(x.size(), 1.5);
    const double h = 1e-6;
    std::vector<double> above = x, below = x;
    for (double& v : above) v += h;
    for (double& v : below) v -= h;
    const auto up = forward(c, above), down = forward(c, below), got = backward(c, x, grad);
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Central differences: cancellation of 1e-16 * 30 / 1e-6 and the third derivative's 1e-12.
      const double want = 1.5 * (up[i] - down[i]) / (2 * h);
      EXPECT_NEAR(got[i], want, 1e-8 * std::max(1.0, std::abs(want))) << c.name << " at " << x[i];
    }
  }
}

TEST(Unary, Float32AgreesWithFloat64) {
  for_each_target([] {
    for (const Case& c : cases()) {
      const auto x = draws<float>(c, 1000, 6);
      const std::vector<float> grad(x.size(), 1.5f);
      const std::vector<double> wide(x.begin(), x.end()), wide_grad(x.size(), 1.5);
      const auto y = forward(c, x), d = backward(c, x, grad);
      const auto wide_y = forward(c, wide), wide_d = backward(c, wide, wide_grad);
      for (std::size_t i = 0; i < x.size(); ++i) {
        // A few roundings, in values near 1.
        EXPECT_NEAR(static_cast<double>(y[i]), wide_y[i], 4e-7 * std::max(1.0, std::abs(wide_y[i]))) << c.name;
        EXPECT_NEAR(static_cast<double>(d[i]), wide_d[i], 8e-7 * std::max(1.0, std::abs(wide_d[i]))) << c.name;
      }
    }
  });
}

template <class Half>
void halves_are_float32_rounded_once() {
  for (const Case& c : cases()) {
    const auto x = draws<Half>(c, 600, 7);
    std::vector<Half> grad(x.size());
    std::vector<float> wide(x.size()), wide_grad(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      grad[i] = narrow<Half>(static_cast<float>(i % 7) - 3.0f);
      wide[i] = to_float(x[i]), wide_grad[i] = to_float(grad[i]);
    }
    const auto y = forward(c, x);
    const auto wide_y = forward(c, wide);
    const std::vector<Half>& saved = kernels::saves_output(c.op) ? y : x;
    std::vector<float> wide_saved(x.size()), wide_d(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) wide_saved[i] = to_float(saved[i]);
    const auto n = static_cast<std::int64_t>(x.size());
    kernels::unary_backward(c.op, float32, wide_saved.data(), wide_grad.data(), wide_d.data(), n, c.parameters);
    const auto d = backward(c, x, grad);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(y[i].bits, narrow<Half>(wide_y[i]).bits) << c.name;
      EXPECT_EQ(d[i].bits, narrow<Half>(wide_d[i]).bits) << c.name;
    }
  }
}

TEST(Unary, HalvesAreFloat32RoundedOnce) {
  for_each_target([] {
    halves_are_float32_rounded_once<Float16>();
    halves_are_float32_rounded_once<BFloat16>();
  });
}

// Every half there is: what is below 0 becomes 0, and lets no gradient through, nor does 0; all else stays to the bit.
template <class T>
void relu_of_every_half() {
  std::vector<T> x(1 << 16), grad(1 << 16, narrow<T>(3.0f));
  for (std::size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<std::uint16_t>(i);
  const auto y = forward<T>({"", Unary::relu, {}, false}, x), d = backward<T>({"", Unary::relu, {}, false}, x, grad);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = widen(x[i]);
    ASSERT_EQ(y[i].bits, value < 0 ? 0 : x[i].bits) << i;
    ASSERT_EQ(d[i].bits, value <= 0 ? 0 : grad[i].bits) << i;
  }
}

TEST(Unary, ReluOfEveryHalf) {
  for_each_target([] {
    relu_of_every_half<Float16>();
    relu_of_every_half<BFloat16>();
  });
}

template <class T>
void same_bits_everywhere() {
  for (const Case& c : cases()) {
    const auto x = draws<T>(c, 64, 8), grad = draws<T>({"", Unary::relu, {}, false}, 64, 9);
    const auto y = forward(c, x), d = backward(c, x, grad);
    for (std::ptrdiff_t offset = 0; offset < 18; ++offset)
      for (std::ptrdiff_t n = 1; n < 40; n += n < 20 ? 1 : 7) {
        // Copies of the exact length: the address sanitizer sees a read past either end.
        const std::vector<T> part(x.begin() + offset, x.begin() + offset + n);
        const std::vector<T> part_grad(grad.begin() + offset, grad.begin() + offset + n);
        const auto part_y = forward(c, part), part_d = backward(c, part, part_grad);
        ASSERT_EQ(std::memcmp(part_y.data(), y.data() + offset, part.size() * sizeof(T)), 0) << c.name;
        ASSERT_EQ(std::memcmp(part_d.data(), d.data() + offset, part.size() * sizeof(T)), 0) << c.name;
      }
  }
}

TEST(Unary, SameBitsWhereverAnElementLies) {
  for_each_target([] {
    same_bits_everywhere<float>();
    same_bits_everywhere<double>();
    same_bits_everywhere<Float16>();
    same_bits_everywhere<BFloat16>();
  });
}

TEST(Unary, SameBitsForAnyThreads) {
  const Case c{"gelu", Unary::gelu, {}, false};
  const auto x = draws<float>(c, 100003, 10);
  std::vector<float> one, two;
  {
    const ThreadLimit limit(1);
    one = forward(c, x);
  }
  {
    const ThreadLimit limit(2);
    two = forward(c, x);
  }
  EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)), 0);
}

TEST(Unary, InPlace) {
  for_each_target([] {
    const Case c{"silu", Unary::silu, {}, false};
    auto x = draws<float>(c, 37, 11);
    const auto want = forward(c, x);
    kernels::unary_forward(c.op, float32, x.data(), x.data(), 37);
    EXPECT_EQ(x, want);
  });
}

TEST(Unary, Integers) {
  const std::vector<std::int32_t> x = {5, -5, 0, std::numeric_limits<std::int32_t>::min(), 100};
  EXPECT_EQ(forward<std::int32_t>({"", Unary::negative, {}, false}, x)[1], 5);
  EXPECT_EQ(forward<std::int32_t>({"", Unary::negative, {}, false}, x)[3], x[3]);
  EXPECT_EQ(forward<std::int32_t>({"", Unary::absolute, {}, false}, x)[1], 5);
  EXPECT_EQ(forward<std::int32_t>({"", Unary::relu, {}, false}, x)[1], 0);
  const auto clipped = forward<std::int32_t>({"", Unary::clip, {-1.5, 7.5}, false}, x);
  EXPECT_EQ(clipped, (std::vector<std::int32_t>{5, -1, 0, -1, 7}));
  EXPECT_EQ(forward<std::int32_t>({"", Unary::scale, {-3, 2}, false}, x)[1], 17);
  EXPECT_EQ(forward<std::uint8_t>({"", Unary::scale, {-1, 1}, false}, {3, 0})[0], 254);
  EXPECT_EQ(forward<std::uint8_t>({"", Unary::negative, {}, false}, {1, 0})[0], 255);
}

}  // namespace
}  // namespace everyo
