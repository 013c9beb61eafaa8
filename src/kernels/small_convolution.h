#pragma once
#include <optional>

#include "kernels/convolution.h"

// Convolutions of images so small that the call of a primitive shows: each result is a product of rows of the image, as
// they lie, and the weight. The sum of a result runs over window rows, columns and channels in that order.
namespace everyo::kernels {

/// Is the pass over such images quicker here? One group.
bool suits_small_convolution(const ConvolutionProblem& problem) noexcept;

/// The convolution that gives the gradient of `problem`'s images from that of its results, with flipped_weight; nothing
/// where there is none (a stride, or padding wider than the window).
std::optional<ConvolutionProblem> data_gradient_as_convolution(const ConvolutionProblem& problem) noexcept;
/// weight [KH, KW, C, O] -> [KH, KW, O, C], rows and columns from the last to the first.
void flip_weight(const ConvolutionProblem& problem, const float* weight, float* flipped);

/// y = the convolution of `images` images of problem.dtype with weight [KH, KW, C, O], plus bias [O] unless that is
/// null, max(., 0) with `relu`, rounded once; on the thread that calls.
void small_convolution(const ConvolutionProblem& problem, std::int64_t images, const void* x, const float* weight,
                       const float* bias, bool relu, void* y);

}  // namespace everyo::kernels
