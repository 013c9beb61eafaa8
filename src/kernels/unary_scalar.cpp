#include "kernels/unary_scalar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

namespace everyo::kernels {
namespace {

constexpr double gelu_slope = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 sqrt(2 / pi)
constexpr double gelu_cube = 0.044715;

double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
// Mass of the normal distribution below x.
double normal_mass(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) { return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2; }
// Infinity times a vanished tail is the tail's limit.
double limited(double x) { return x < -1000.0 ? -1000.0 : x; }
double limited_both(double x, double by) { return x < -by ? -by : (x > by ? by : x); }

double forward(Unary op, double x, UnaryParameters p) {
  switch (op) {
    case Unary::negative: return -x;
    case Unary::absolute: return std::abs(x);
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::sqrt: return std::sqrt(x);
    case Unary::relu: return x < 0 ? 0 : x;
    case Unary::sigmoid: return sigmoid(x);
    case Unary::tanh: return std::tanh(x);
    case Unary::gelu: return limited(x) * normal_mass(x);
    case Unary::gelu_tanh: return limited(x) * sigmoid(gelu_slope * (x + gelu_cube * x * x * x));
    case Unary::silu: return limited(x) * sigmoid(x);
    case Unary::clip: return x < p.a ? p.a : (x > p.b ? p.b : x);
    case Unary::power: return std::pow(x, p.a);
    case Unary::scale: return p.b == 0 ? x * p.a : x * p.a + p.b;
    case Unary::reciprocal: return p.a / x;
  }
  return x;
}

double slope(Unary op, double saved, UnaryParameters p) {
  switch (op) {
    case Unary::negative: return -1;
    case Unary::absolute: return saved > 0 ? 1 : (saved < 0 ? -1 : saved * 0);
    case Unary::exp: return saved;
    case Unary::log: return 1 / saved;
    case Unary::sqrt: return 1 / std::max(2 * saved, 1e-12);
    case Unary::relu: return saved <= 0 ? 0 : 1;
    case Unary::sigmoid: return saved * (1 - saved);
    case Unary::tanh: return 1 - saved * saved;
    case Unary::gelu: {
      const double x = limited_both(saved, 40);
      return normal_mass(x) + x * normal_density(x);
    }
    case Unary::gelu_tanh: {
      const double x = limited_both(saved, 40), s = sigmoid(gelu_slope * (x + gelu_cube * x * x * x));
      return s + x * s * (1 - s) * gelu_slope * (1 + 3 * gelu_cube * x * x);
    }
    case Unary::silu: {
      const double x = limited_both(saved, 1000), s = sigmoid(x);
      return s * (1 + x * (1 - s));
    }
    case Unary::clip: return saved >= p.a && saved <= p.b ? 1 : 0;
    case Unary::power: return p.a == 0 ? 0 : p.a * std::pow(saved, p.a - 1);
    case Unary::scale: return p.a;
    case Unary::reciprocal: return -p.a / (saved * saved);
  }
  return 1;
}

// The nearest integer of T at or inside a bound.
template <class T>
T integer_bound(double bound) {
  if (!(bound > static_cast<double>(std::numeric_limits<T>::min()))) return std::numeric_limits<T>::min();
  if (bound >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(bound);
}

template <class T>
void forward_integer(Unary op, const T* x, T* y, std::size_t n, UnaryParameters p) {
  using U = std::make_unsigned_t<T>;
  const auto negated = [](T v) { return static_cast<T>(static_cast<U>(U{0} - static_cast<U>(v))); };
  if (op == Unary::negative) {
    std::transform(x, x + n, y, negated);
  } else if (op == Unary::absolute) {
    std::transform(x, x + n, y, [&](T v) { return v < T{} ? negated(v) : v; });
  } else if (op == Unary::relu) {
    std::transform(x, x + n, y, [](T v) { return std::max(v, T{}); });
  } else if (op == Unary::clip) {
    const T low = integer_bound<T>(std::ceil(p.a)), high = integer_bound<T>(std::floor(p.b));
    std::transform(x, x + n, y, [=](T v) { return std::min(std::max(v, low), high); });
  } else if (op == Unary::scale) {
    const auto factor = static_cast<U>(integer_bound<std::int64_t>(p.a));
    const auto offset = static_cast<U>(integer_bound<std::int64_t>(p.b));
    std::transform(x, x + n, y, [=](T v) {
      return static_cast<T>(static_cast<std::uint64_t>(static_cast<U>(v)) * factor + offset);
    });
  }
}

}  // namespace

void unary_forward_double(Unary op, const double* x, double* y, std::size_t n, UnaryParameters parameters) {
  for (std::size_t i = 0; i < n; ++i) y[i] = forward(op, x[i], parameters);
}

void unary_backward_double(Unary op, const double* saved, const double* grad, double* grad_x, std::size_t n,
                           UnaryParameters parameters) {
  if (op == Unary::relu || op == Unary::clip) {  // a choice, not a product: 0 * inf is not 0
    for (std::size_t i = 0; i < n; ++i) grad_x[i] = slope(op, saved[i], parameters) == 0 ? 0 : grad[i];
  } else {
    for (std::size_t i = 0; i < n; ++i) grad_x[i] = grad[i] * slope(op, saves_nothing(op) ? 0.0 : saved[i], parameters);
  }
}

void unary_forward_integer(Unary op, DType dtype, const void* x, void* y, std::size_t n, UnaryParameters parameters) {
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      forward_integer(op, static_cast<const T*>(x), static_cast<T*>(y), n, parameters);
  });
}

void power_forward(const float* x, float* y, std::size_t n, double exponent) {
  for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<float>(std::pow(static_cast<double>(x[i]), exponent));
}

void power_backward(const float* x, const float* grad, float* grad_x, std::size_t n, double exponent) {
  for (std::size_t i = 0; i < n; ++i) {
    const double slope_here = exponent == 0 ? 0 : exponent * std::pow(static_cast<double>(x[i]), exponent - 1);
    grad_x[i] = static_cast<float>(static_cast<double>(grad[i]) * slope_here);
  }
}

}  // namespace everyo::kernels
