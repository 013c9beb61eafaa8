#pragma once
#include "kernels/convolution.h"

// Convolutions in float64: plain sums, each in one order.
namespace everyo::kernels {

void plain_convolution(const ConvolutionProblem& problem, const double* x, const double* weight, const double* bias,
                       double* y);
void plain_convolution_data_gradient(const ConvolutionProblem& problem, const double* weight, const double* dy,
                                     double* grad_x);
void plain_convolution_weight_gradient(const ConvolutionProblem& problem, const double* x, const double* dy,
                                       double* grad_weight, bool accumulate);

}  // namespace everyo::kernels
