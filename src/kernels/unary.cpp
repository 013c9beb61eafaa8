#include "kernels/unary.h"

#include <algorithm>
#include <limits>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/unary_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/unary.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// Each function: f(x), and d(saved, g) = g f'(x).
HWY_INLINE VF zero() { return hn::Zero(F32()); }
HWY_INLINE VF one() { return constant(1.0f); }
// Infinity times a vanished tail is the tail's limit.
HWY_INLINE VF limited(VF x) { return hn::IfThenElse(hn::Lt(x, constant(-1000.0f)), constant(-1000.0f), x); }
HWY_INLINE VF within(VF x, float by) { return clamp(x, constant(-by), constant(by)); }

struct Negative {
  HWY_INLINE VF f(VF x) const { return hn::Neg(x); }
  HWY_INLINE VF d(VF, VF g) const { return hn::Neg(g); }
};
struct Absolute {
  HWY_INLINE VF f(VF x) const { return hn::Abs(x); }
  HWY_INLINE VF d(VF x, VF g) const {
    const VF down = hn::IfThenElse(hn::Lt(x, zero()), hn::Neg(g), hn::Mul(x, zero()));  // 0 at 0, NaN at NaN
    return hn::IfThenElse(hn::Gt(x, zero()), g, down);
  }
};
struct Exp {
  HWY_INLINE VF f(VF x) const { return exp(x); }
  HWY_INLINE VF d(VF y, VF g) const { return hn::Mul(g, y); }
};
struct Log {
  HWY_INLINE VF f(VF x) const { return log(x); }
  HWY_INLINE VF d(VF x, VF g) const { return hn::Div(g, x); }
};
struct Sqrt {
  HWY_INLINE VF f(VF x) const { return hn::Sqrt(x); }
  HWY_INLINE VF d(VF y, VF g) const {
    const VF twice = hn::Add(y, y), least = constant(1e-12f);
    return hn::Div(g, hn::IfThenElse(hn::Lt(twice, least), least, twice));
  }
};
struct Relu {
  HWY_INLINE VF f(VF x) const { return hn::IfThenZeroElse(hn::Lt(x, zero()), x); }
  HWY_INLINE VF d(VF y, VF g) const { return hn::IfThenZeroElse(hn::Le(y, zero()), g); }
};
struct Sigmoid {
  HWY_INLINE VF f(VF x) const { return sigmoid(x); }
  HWY_INLINE VF d(VF y, VF g) const { return hn::Mul(g, hn::Mul(y, hn::Sub(one(), y))); }
};
struct Tanh {
  HWY_INLINE VF f(VF x) const { return tanh(x); }
  HWY_INLINE VF d(VF y, VF g) const { return hn::Mul(g, hn::NegMulAdd(y, y, one())); }
};
struct Gelu {
  HWY_INLINE VF f(VF x) const { return hn::Mul(limited(x), normal(within(x, 15.0f)).mass); }
  HWY_INLINE VF d(VF x, VF g) const {
    const VF near = within(x, 15.0f);
    const Normal at = normal(near);
    return hn::Mul(g, hn::MulAdd(near, at.density, at.mass));
  }
};
struct GeluTanh {
  static constexpr float slope = 1.59576912f, cube = 0.044715f;  // 2 sqrt(2 / pi)
  static HWY_INLINE VF weight(VF x) {
    const VF square = hn::Mul(x, x);
    return sigmoid(hn::Mul(hn::Mul(x, constant(slope)), hn::MulAdd(square, constant(cube), one())));
  }
  HWY_INLINE VF f(VF x) const { return hn::Mul(limited(x), weight(within(x, 40.0f))); }
  HWY_INLINE VF d(VF x, VF g) const {
    const VF near = within(x, 40.0f), s = weight(near);
    const VF inner = hn::Mul(constant(slope), hn::MulAdd(hn::Mul(near, near), constant(3 * cube), one()));
    return hn::Mul(g, hn::MulAdd(hn::Mul(near, hn::Mul(s, hn::Sub(one(), s))), inner, s));
  }
};
struct Silu {
  HWY_INLINE VF f(VF x) const { return hn::Mul(limited(x), sigmoid(x)); }
  HWY_INLINE VF d(VF x, VF g) const {
    const VF near = within(x, 1000.0f), s = sigmoid(near);
    return hn::Mul(g, hn::Mul(s, hn::MulAdd(near, hn::Sub(one(), s), one())));
  }
};
struct Clip {
  float low, high;
  HWY_INLINE VF f(VF x) const { return clamp(x, constant(low), constant(high)); }
  HWY_INLINE VF d(VF x, VF g) const {
    return hn::IfThenElseZero(hn::And(hn::Ge(x, constant(low)), hn::Le(x, constant(high))), g);
  }
};
struct Square {
  HWY_INLINE VF f(VF x) const { return hn::Mul(x, x); }
  HWY_INLINE VF d(VF x, VF g) const { return hn::Mul(g, hn::Add(x, x)); }
};
struct Cube {
  HWY_INLINE VF f(VF x) const { return hn::Mul(hn::Mul(x, x), x); }
  HWY_INLINE VF d(VF x, VF g) const { return hn::Mul(g, hn::Mul(constant(3.0f), hn::Mul(x, x))); }
};
struct Root {
  HWY_INLINE VF f(VF x) const { return hn::Sqrt(x); }
  HWY_INLINE VF d(VF x, VF g) const { return hn::Div(hn::Mul(g, constant(0.5f)), hn::Sqrt(x)); }
};
struct Reciprocal {
  float numerator;
  HWY_INLINE VF f(VF x) const { return hn::Div(constant(numerator), x); }
  HWY_INLINE VF d(VF x, VF g) const { return hn::Neg(hn::Div(hn::Mul(g, hn::Div(constant(numerator), x)), x)); }
};
struct Scale {
  float factor, offset;  // an offset of -0 changes nothing, the sign of a zero included
  HWY_INLINE VF f(VF x) const { return hn::MulAdd(x, constant(factor), constant(offset)); }
  HWY_INLINE VF d(VF, VF g) const { return hn::Mul(g, constant(factor)); }
};

template <class F>
void loop_forward(const float* x, float* y, std::size_t n, F op) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(op.f(load(x + i)), y + i);
  if (i < n) store_part(op.f(load_part(x + i, n - i)), y + i, n - i);
}
template <class F>
void loop_backward(const float* saved, const float* grad, float* grad_x, std::size_t n, F op) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(op.d(load(saved + i), load(grad + i)), grad_x + i);
  if (i < n) store_part(op.d(load_part(saved + i, n - i), load_part(grad + i, n - i)), grad_x + i, n - i);
}

// Calls run(function) with the op's function; a power is one of the simple ones.
template <class Run>
HWY_INLINE void with_function(Unary op, UnaryParameters p, Run run) {
  switch (op) {
    case Unary::negative: return run(Negative());
    case Unary::absolute: return run(Absolute());
    case Unary::exp: return run(Exp());
    case Unary::log: return run(Log());
    case Unary::sqrt: return run(Sqrt());
    case Unary::relu: return run(Relu());
    case Unary::sigmoid: return run(Sigmoid());
    case Unary::tanh: return run(Tanh());
    case Unary::gelu: return run(Gelu());
    case Unary::gelu_tanh: return run(GeluTanh());
    case Unary::silu: return run(Silu());
    case Unary::clip: return run(Clip{static_cast<float>(p.a), static_cast<float>(p.b)});
    case Unary::power:
      if (p.a == 2) return run(Square());
      if (p.a == 3) return run(Cube());
      if (p.a == 0.5) return run(Root());
      return run(Reciprocal{1.0f});
    case Unary::reciprocal: return run(Reciprocal{static_cast<float>(p.a)});
    case Unary::scale: return run(Scale{static_cast<float>(p.a), p.b == 0 ? -0.0f : static_cast<float>(p.b)});
  }
}
struct RunForward {
  const float* x;
  float* y;
  std::size_t n;
  template <class F>
  void operator()(F op) const {
    loop_forward(x, y, n, op);
  }
};
struct RunBackward {
  const float *saved, *grad;
  float* grad_x;
  std::size_t n;
  template <class F>
  void operator()(F op) const {
    loop_backward(saved, grad, grad_x, n, op);
  }
};

bool simple_power(double exponent) { return exponent == 2 || exponent == 3 || exponent == 0.5 || exponent == -1; }

void forward_float(Unary op, const float* x, float* y, std::size_t n, UnaryParameters p) {
  if (op == Unary::power && !simple_power(p.a)) return power_forward(x, y, n, p.a);
  with_function(op, p, RunForward{x, y, n});
}
void backward_float(Unary op, const float* saved, const float* grad, float* grad_x, std::size_t n, UnaryParameters p) {
  if (op == Unary::power && !simple_power(p.a)) return power_backward(saved, grad, grad_x, n, p.a);
  with_function(op, p, RunBackward{saved, grad, grad_x, n});
}

// ReLU of halves as bits, which are numbers in order of size: twice as many to a vector, and nothing to round. The
// sign is kept of a -0, and a NaN, which lies above infinity.
using Bits = hn::ScalableTag<std::int16_t>;
template <class T>
constexpr auto negative_infinity = static_cast<std::int16_t>(std::is_same_v<T, BFloat16> ? 0xff80 : 0xfc00);
constexpr std::int16_t negative_zero = std::numeric_limits<std::int16_t>::min();

template <class T>
void relu_forward(const T* from, T* to, std::size_t n) {
  const Bits d;
  const auto* x = reinterpret_cast<const std::int16_t*>(from);
  auto* y = reinterpret_cast<std::int16_t*>(to);
  const auto least = hn::Set(d, negative_infinity<T>), minus = hn::Set(d, negative_zero);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto bits = hn::LoadU(d, x + i);
    hn::StoreU(hn::IfThenElseZero(hn::Or(hn::Gt(bits, least), hn::Eq(bits, minus)), bits), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] > negative_infinity<T> || x[i] == negative_zero ? x[i] : std::int16_t{};
}
template <class T>
void relu_backward(const T* saved, const T* from, T* to, std::size_t n) {
  const Bits d;
  const auto *y = reinterpret_cast<const std::int16_t*>(saved), *grad = reinterpret_cast<const std::int16_t*>(from);
  auto* grad_x = reinterpret_cast<std::int16_t*>(to);
  const auto least = hn::Set(d, negative_infinity<T>);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto bits = hn::LoadU(d, y + i);
    const auto passes = hn::AndNot(hn::Eq(bits, hn::Zero(d)), hn::Gt(bits, least));
    hn::StoreU(hn::IfThenElseZero(passes, hn::LoadU(d, grad + i)), d, grad_x + i);
  }
  for (; i < n; ++i) grad_x[i] = y[i] > negative_infinity<T> && y[i] != 0 ? grad[i] : std::int16_t{};
}

template <class T>
void forward_half(Unary op, const T* x, T* y, std::size_t n, UnaryParameters p) {
  if (op == Unary::relu) return relu_forward(x, y, n);
  HWY_ALIGN float wide[piece];
  for (std::size_t i = 0; i < n; i += piece) {
    const std::size_t count = n - i < piece ? n - i : piece;
    copy_elements(x + i, wide, count);
    forward_float(op, wide, wide, count, p);
    copy_elements(wide, y + i, count);
  }
}
template <class T>
void backward_half(Unary op, const T* saved, const T* grad, T* grad_x, std::size_t n, UnaryParameters p) {
  if (op == Unary::relu) return relu_backward(saved, grad, grad_x, n);
  HWY_ALIGN float wide[piece];
  HWY_ALIGN float wide_grad[piece];
  for (std::size_t i = 0; i < n; i += piece) {
    const std::size_t count = n - i < piece ? n - i : piece;
    copy_elements(saved + i, wide, count);
    copy_elements(grad + i, wide_grad, count);
    backward_float(op, wide, wide_grad, wide, count, p);
    copy_elements(wide, grad_x + i, count);
  }
}

void vector_forward(Unary op, DType dtype, const void* x, void* y, std::size_t n, UnaryParameters p) {
  if (dtype == float32) return forward_float(op, static_cast<const float*>(x), static_cast<float*>(y), n, p);
  if (dtype == float16) return forward_half(op, static_cast<const Float16*>(x), static_cast<Float16*>(y), n, p);
  forward_half(op, static_cast<const BFloat16*>(x), static_cast<BFloat16*>(y), n, p);
}
void vector_backward(Unary op, DType dtype, const void* saved, const void* grad, void* grad_x, std::size_t n,
                     UnaryParameters p) {
  if (dtype == float32)
    return backward_float(op, static_cast<const float*>(saved), static_cast<const float*>(grad),
                          static_cast<float*>(grad_x), n, p);
  if (dtype == float16)
    return backward_half(op, static_cast<const Float16*>(saved), static_cast<const Float16*>(grad),
                         static_cast<Float16*>(grad_x), n, p);
  backward_half(op, static_cast<const BFloat16*>(saved), static_cast<const BFloat16*>(grad),
                static_cast<BFloat16*>(grad_x), n, p);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(vector_forward);
HWY_EXPORT(vector_backward);

constexpr std::int64_t grain = std::int64_t{1} << 13;

const std::byte* at(const void* data, std::int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}
std::byte* at(void* data, std::int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}

}  // namespace

void unary_forward(Unary op, DType dtype, const void* x, void* y, std::int64_t n, UnaryParameters parameters) {
  use_isa();
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const std::byte* from = at(x, begin, dtype);
    std::byte* to = at(y, begin, dtype);
    if (dtype == float64) {
      unary_forward_double(op, reinterpret_cast<const double*>(from), reinterpret_cast<double*>(to), count, parameters);
    } else if (is_floating(dtype)) {
      HWY_DYNAMIC_DISPATCH(vector_forward)(op, dtype, from, to, count, parameters);
    } else {
      unary_forward_integer(op, dtype, from, to, count, parameters);
    }
  });
}

void unary_backward(Unary op, DType dtype, const void* saved, const void* grad, void* grad_x, std::int64_t n,
                    UnaryParameters parameters) {
  use_isa();
  if (saves_nothing(op)) saved = grad;  // nothing was saved, and nothing is read
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const std::byte *kept = at(saved, begin, dtype), *from = at(grad, begin, dtype);
    std::byte* to = at(grad_x, begin, dtype);
    if (dtype == float64) {
      unary_backward_double(op, reinterpret_cast<const double*>(kept), reinterpret_cast<const double*>(from),
                            reinterpret_cast<double*>(to), count, parameters);
    } else {
      HWY_DYNAMIC_DISPATCH(vector_backward)(op, dtype, kept, from, to, count, parameters);
    }
  });
}

}  // namespace everyo::kernels
#endif
