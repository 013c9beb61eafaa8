#pragma once
#include <cstddef>

#include "kernels/unary.h"

// The parts of unary that have no vector code: float64, integers, and powers that are not simple.
namespace everyo::kernels {

void unary_forward_double(Unary op, const double* x, double* y, std::size_t n, UnaryParameters parameters);
void unary_backward_double(Unary op, const double* saved, const double* grad, double* grad_x, std::size_t n,
                           UnaryParameters parameters);

/// int64, int32, uint8.
void unary_forward_integer(Unary op, DType dtype, const void* x, void* y, std::size_t n, UnaryParameters parameters);

/// x^exponent in float64, rounded once.
void power_forward(const float* x, float* y, std::size_t n, double exponent);
void power_backward(const float* x, const float* grad, float* grad_x, std::size_t n, double exponent);

}  // namespace everyo::kernels
