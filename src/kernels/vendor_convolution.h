#pragma once
#include "kernels/convolution.h"

// Convolutions of a few images by oneDNN, on the thread that calls: float32, and halves where the processor multiplies
// them. Primitives and memory objects are kept per thread; a new shape costs some milliseconds once.
namespace everyo::kernels {

enum class ConvolutionPass : std::uint8_t { forward, data, weight };

/// One pass over chunks of images. The weight, or its gradient, lies in the order that oneDNN takes for chunks of
/// `problem.images` images, and all chunks of a call share it. Images, results and the weight have problem.dtype; bias
/// and the weight's gradient are float32.
struct VendorConvolution {
  ConvolutionPass pass;
  ConvolutionProblem problem;  ///< of a whole chunk
  bool bias = false;           ///< forward adds one
};

/// Whether oneDNN computes the pass in problem.dtype, a half, with the processor's own products of halves: elsewhere it
/// has slow kernels for halves, or none. The answer is the same on every thread.
bool multiplies_halves(const VendorConvolution& convolution);

/// Bytes of the weight in that order: room for padding included.
std::int64_t packed_weight_bytes(const VendorConvolution& convolution);
void pack_weight(const VendorConvolution& convolution, const void* weight, void* packed);
/// The weight's gradient from that order.
void unpack_weight(const VendorConvolution& convolution, const float* packed, float* gradient);

// One pass over `images` images, at most a whole chunk; may run on several threads at once. bias may be null where
// `convolution.bias` is false.
void run_forward(const VendorConvolution& convolution, std::int64_t images, const void* x, const void* packed,
                 const float* bias, void* y);
void run_data(const VendorConvolution& convolution, std::int64_t images, const void* packed, const void* dy,
              void* grad_x);
void run_weight(const VendorConvolution& convolution, std::int64_t images, const void* x, const void* dy,
                float* packed);

}  // namespace everyo::kernels
