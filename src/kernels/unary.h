#pragma once
#include <cstdint>

#include "everyo/dtype.h"

namespace everyo::kernels {

/// Functions of one element. gelu is x times the normal distribution's mass below x, gelu_tanh its usual approximation.
enum class Unary : std::uint8_t {
  negative,
  absolute,
  exp,
  log,
  sqrt,
  relu,
  sigmoid,
  tanh,
  gelu,
  gelu_tanh,
  silu,
  clip,        ///< to [a, b]
  power,       ///< to the power a
  scale,       ///< x a + b
  reciprocal,  ///< a / x
};

/// What clip, power, scale and reciprocal take.
struct UnaryParameters {
  double a = 0, b = 0;
};

/// True if backward is written in the output, false if in the input (or in neither).
constexpr bool saves_output(Unary op) noexcept {
  return op == Unary::exp || op == Unary::sqrt || op == Unary::relu || op == Unary::sigmoid || op == Unary::tanh;
}

/// True if backward needs the gradient alone: `saved` is not read.
constexpr bool saves_nothing(Unary op) noexcept { return op == Unary::negative || op == Unary::scale; }

/// Additions and multiplications an element, a function of the C library counted as the ten or so that it takes.
constexpr double operations(Unary op) noexcept {
  switch (op) {
    case Unary::exp:
    case Unary::log:
    case Unary::power: return 10;
    case Unary::sigmoid:
    case Unary::tanh:
    case Unary::silu: return 12;
    case Unary::gelu:
    case Unary::gelu_tanh: return 20;
    case Unary::scale: return 2;
    default: return 1;
  }
}

/// y[n] = op(x[n]); y may be x. Floating dtypes; negative, absolute, relu, clip and scale also take int64, int32 and
/// uint8 (modulo 2^bits; clip's bounds are then rounded towards the inside, scale's numbers are whole).
/// float32 and halves: own vector code, errors in vector_math-inl.h; float64: the C library's functions. NaN stays NaN.
/// An element's bits do not depend on where it lies.
void unary_forward(Unary op, DType dtype, const void* x, void* y, std::int64_t n, UnaryParameters parameters = {});

/// grad_x[n] = grad[n] * op'(x), from the output or the input as saves_output says; grad_x may be grad. Floating
/// dtypes. At corners: relu'(0) = 0, abs'(0) = 0, clip' = 1 on the closed interval; sqrt' divides by 2 sqrt(x), at
/// least 1e-12.
void unary_backward(Unary op, DType dtype, const void* saved, const void* grad, void* grad_x, std::int64_t n,
                    UnaryParameters parameters = {});

}  // namespace everyo::kernels
