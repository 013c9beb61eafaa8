#pragma once
#include "kernels/convolution.h"

// Convolutions of a few float32 images by oneDNN, on the thread that calls. Primitives and memory objects are kept per
// thread; a new shape costs some milliseconds once.
namespace everyo::kernels {

enum class ConvolutionPass : std::uint8_t { forward, data, weight };

/// One pass over chunks of images. The weight, or its gradient, lies in the order that oneDNN takes for chunks of
/// `problem.images` images, and all chunks of a call share it.
struct VendorConvolution {
  ConvolutionPass pass;
  ConvolutionProblem problem;  ///< of a whole chunk; its dtype is not looked at
  bool bias = false;           ///< forward adds one
};

/// Elements of the weight in that order: room for padding included.
std::int64_t packed_weight_size(const VendorConvolution& convolution);
void pack_weight(const VendorConvolution& convolution, const float* weight, float* packed);
void unpack_weight(const VendorConvolution& convolution, const float* packed, float* weight);

// One pass over `images` images, at most a whole chunk; may run on several threads at once. bias may be null where
// `convolution.bias` is false.
void run_forward(const VendorConvolution& convolution, std::int64_t images, const float* x, const float* packed,
                 const float* bias, float* y);
void run_data(const VendorConvolution& convolution, std::int64_t images, const float* packed, const float* dy,
              float* grad_x);
void run_weight(const VendorConvolution& convolution, std::int64_t images, const float* x, const float* dy,
                float* packed);

}  // namespace everyo::kernels
