#include "kernels/convolution.h"

#include <algorithm>
#include <cstring>

#include "kernels/binary.h"
#include "kernels/convert.h"
#include "kernels/gradients.h"
#include "kernels/matmul.h"
#include "kernels/parallel.h"
#include "kernels/plain_convolution.h"
#include "kernels/scratch.h"
#include "kernels/small_convolution.h"
#include "kernels/unary.h"
#include "kernels/vendor_convolution.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Images and results of a chunk stay in a core's second-level cache: 8 images of 32x32x32->64 (3 MB) cost halves 1.1x
// of what 2 images do, where they are copied to float32.
constexpr std::int64_t chunk_bytes = 768 * 1024;
constexpr std::int64_t chunk_work = 1 << 19;  // products below which the call of a primitive shows
constexpr std::int64_t small_work = 1 << 18;  // and, without one, a thread's waking
constexpr std::int64_t most_sums = 16;        // partial sums of a weight gradient
constexpr std::int64_t sums_bytes = 32 << 20;

// The batch cut in `count` chunks of `images` images, the last may be smaller.
struct Chunks {
  std::int64_t images, count;
};

// For images and results of `dtype`.
Chunks cut(const ConvolutionProblem& p, DType dtype, std::int64_t bytes, std::int64_t least_work = chunk_work) {
  const std::int64_t work = std::max<std::int64_t>(1, p.result_size() / p.outputs * p.weight_size());
  const std::int64_t image = static_cast<std::int64_t>(size_of(dtype)) * (p.image_size() + p.result_size());
  const std::int64_t fitting = std::max<std::int64_t>(1, bytes / image);
  const std::int64_t worthwhile = std::max(ceil_divide(least_work, work), ceil_divide(p.images, most_sums));
  std::int64_t count = ceil_divide(p.images, std::min(fitting, worthwhile));
  if (count > 1) count = std::min(p.images, ceil_divide(count, 4) * 4);  // equal shares for 2 and 4 threads
  const std::int64_t images = ceil_divide(p.images, count);
  return {images, ceil_divide(p.images, images)};
}

// A call of oneDNN and the chunks that it is made for: in halves where the processor multiplies them, else in float32.
struct Call {
  Chunks chunks;
  VendorConvolution vendor;
  [[nodiscard]] DType dtype() const { return vendor.problem.dtype; }
};

// Whether oneDNN's products of halves keep places apart. They take pairs of what is summed over, and where that is odd
// the last one's partner is the next place's first, times zero: nothing, unless it is infinite or NaN.
bool keeps_places_apart(ConvolutionPass pass, const ConvolutionProblem& p, const void* read) {
  const bool data = pass == ConvolutionPass::data;
  const std::int64_t summed = pass == ConvolutionPass::weight ? p.width.output
                              : data                          ? p.outputs / p.groups
                                                              : p.channels / p.groups;
  return summed % 2 == 0 || all_finite(p.dtype, read, p.images * (data ? p.result_size() : p.image_size()));
}

// `read`: x, or in the data's pass dy.
Call make_call(ConvolutionPass pass, const ConvolutionProblem& p, const void* read, std::int64_t bytes,
               bool bias = false) {
  const auto with = [&](DType dtype) {
    Call call{cut(p, dtype, bytes), {pass, p, bias}};
    call.vendor.problem.images = call.chunks.images;
    call.vendor.problem.dtype = dtype;
    return call;
  };
  // A small weight's gradient would be mostly transposes of pairs: 1.2 times as long as with copies.
  const bool worth = pass != ConvolutionPass::weight || !suits_small_convolution(p);
  if (p.dtype != float32 && worth) {
    const Call call = with(p.dtype);
    if (multiplies_halves(call.vendor) && keeps_places_apart(pass, p, read)) return call;
  }
  return with(float32);
}

// body(first image, images) for each chunk.
template <class F>
void for_each_chunk(const ConvolutionProblem& p, const Chunks& chunks, F&& body) {
  parallel_for(p.images, chunks.images, [&](std::int64_t first, std::int64_t end) { body(first, end - first); });
}

const std::byte* at(const ConvolutionProblem& p, const void* data, std::int64_t element) {
  return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(size_of(p.dtype));
}
std::byte* at(const ConvolutionProblem& p, void* data, std::int64_t element) {
  return static_cast<std::byte*>(data) + element * static_cast<std::int64_t>(size_of(p.dtype));
}

// Elements to read as another dtype: themselves, or a copy for a scope. A long run of them is always copied: oneDNN's
// kernels walk over a chunk in strides, which takes a weight gradient 1.4 times as long from memory as from a cache
// that an orderly copy has filled.
class Operand {
 public:
  Operand(DType dtype, const void* elements, DType as, std::int64_t count)
      : copied_(dtype != as || count >= worth_a_copy),
        copy_(copied_ ? count * static_cast<std::int64_t>(size_of(as)) : 0) {
    if (copied_) convert(dtype, elements, as, copy_.data(), count);
    data_ = copied_ ? copy_.data() : elements;
  }
  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] const float* floats() const noexcept { return static_cast<const float*>(data_); }

 private:
  static constexpr std::int64_t worth_a_copy = 16 * 1024;
  bool copied_;
  Scratch<std::byte> copy_;
  const void* data_;
};

// Room for results of another dtype: their own memory, or a copy that store() rounds.
class Room {
 public:
  Room(DType dtype, void* elements, DType as, std::int64_t count)
      : dtype_(dtype),
        as_(as),
        elements_(elements),
        count_(count),
        copy_(dtype == as ? 0 : count * static_cast<std::int64_t>(size_of(as))),
        data_(dtype == as ? elements : copy_.data()) {}
  [[nodiscard]] void* data() const noexcept { return data_; }
  void store() const {
    if (dtype_ != as_) convert(as_, data_, dtype_, elements_, count_);
  }

 private:
  DType dtype_, as_;
  void* elements_;
  std::int64_t count_;
  Scratch<std::byte> copy_;
  void* data_;
};

class PackedWeight {
 public:
  PackedWeight(const Call& call, DType dtype, const void* weight) : packed_(packed_weight_bytes(call.vendor)) {
    const bool wide = dtype != call.dtype();
    const Scratch<std::byte> copy(wide ? bytes_of_weight(call) : 0);
    if (wide) convert(dtype, weight, call.dtype(), copy.data(), call.vendor.problem.weight_size());
    pack_weight(call.vendor, wide ? copy.data() : weight, packed_.data());
  }
  [[nodiscard]] const void* data() const noexcept { return packed_.data(); }

 private:
  static std::int64_t bytes_of_weight(const Call& call) {
    return call.vendor.problem.weight_size() * static_cast<std::int64_t>(size_of(call.dtype()));
  }
  Scratch<std::byte> packed_;
};

// y from weight and bias in float32.
void run_small(const ConvolutionProblem& p, const void* x, const float* weight, const float* bias, bool relu, void* y) {
  for_each_chunk(p, cut(p, float32, chunk_bytes, small_work), [&](std::int64_t first, std::int64_t images) {
    small_convolution(p, images, at(p, x, first * p.image_size()), weight, bias, relu,
                      at(p, y, first * p.result_size()));
  });
}

void zero(const ConvolutionProblem& p, void* data, std::int64_t elements) {
  std::memset(data, 0, static_cast<std::size_t>(elements) * size_of(p.dtype));
}

// Nothing is summed: the result is the bias.
void fill_with_bias(const ConvolutionProblem& p, const void* bias, void* y) {
  if (!bias) return zero(p, y, p.images * p.result_size());
  for (std::int64_t i = 0; i < p.images * p.result_size(); i += p.outputs)
    std::memcpy(at(p, y, i), bias, static_cast<std::size_t>(p.outputs) * size_of(p.dtype));
}

const double* doubles(const void* data) { return static_cast<const double*>(data); }
double* doubles(void* data) { return static_cast<double*>(data); }

// grad_weight = gradient, or the sum of both, rounded as a separate op would.
void store_gradient(const ConvolutionProblem& p, const float* gradient, void* grad_weight, bool accumulate) {
  const std::int64_t n = p.weight_size();
  if (!accumulate) return convert(float32, gradient, p.dtype, grad_weight, n);
  const Scratch<std::byte> rounded(n * static_cast<std::int64_t>(size_of(p.dtype)));
  convert(float32, gradient, p.dtype, rounded.data(), n);
  binary(Binary::add, p.dtype, n, grad_weight, rounded.data(), grad_weight);
}

}  // namespace

void convolution(const ConvolutionProblem& p, const void* x, const void* weight, const void* bias, bool relu, void* y) {
  const std::int64_t elements = p.images * p.result_size();
  if (elements == 0) return;
  const bool empty_sum = p.image_size() == 0;
  if (empty_sum || p.dtype == float64) {
    if (empty_sum)
      fill_with_bias(p, bias, y);
    else
      plain_convolution(p, doubles(x), doubles(weight), doubles(bias), doubles(y));
    if (relu) unary_forward(Unary::relu, p.dtype, y, y, elements);
    return;
  }
  const Operand wide_bias(p.dtype, bias, float32, bias ? p.outputs : 0);
  if (suits_small_convolution(p)) {
    const Operand wide_weight(p.dtype, weight, float32, p.weight_size());
    return run_small(p, x, wide_weight.floats(), bias ? wide_bias.floats() : nullptr, relu, y);
  }
  const Call call = make_call(ConvolutionPass::forward, p, x, chunk_bytes, bias != nullptr);
  const PackedWeight packed(call, p.dtype, weight);
  for_each_chunk(p, call.chunks, [&](std::int64_t first, std::int64_t images) {
    const std::int64_t n = images * p.result_size();
    std::byte* const to = at(p, y, first * p.result_size());
    const Operand in(p.dtype, at(p, x, first * p.image_size()), call.dtype(), images * p.image_size());
    const Room out(p.dtype, to, call.dtype(), n);
    run_forward(call.vendor, images, in.data(), packed.data(), bias ? wide_bias.floats() : nullptr, out.data());
    out.store();
    // While it is in the cache. Not as oneDNN's own step: that turns NaN into 0.
    if (relu) unary_forward(Unary::relu, p.dtype, to, to, n);
  });
}

void convolution_data_gradient(const ConvolutionProblem& p, const void* weight, const void* dy, void* grad_x) {
  const std::int64_t elements = p.images * p.image_size();
  if (elements == 0) return;
  if (p.result_size() == 0) return zero(p, grad_x, elements);
  if (p.dtype == float64) return plain_convolution_data_gradient(p, doubles(weight), doubles(dy), doubles(grad_x));
  const auto turned = data_gradient_as_convolution(p);
  if (turned && suits_small_convolution(*turned)) {
    const Operand wide(p.dtype, weight, float32, p.weight_size());
    const Scratch<float> flipped(p.weight_size());
    flip_weight(p, wide.floats(), flipped.data());
    return run_small(*turned, dy, flipped.data(), nullptr, false, grad_x);
  }
  const Call call = make_call(ConvolutionPass::data, p, dy, chunk_bytes);
  const PackedWeight packed(call, p.dtype, weight);
  for_each_chunk(p, call.chunks, [&](std::int64_t first, std::int64_t images) {
    const Operand in(p.dtype, at(p, dy, first * p.result_size()), call.dtype(), images * p.result_size());
    const Room out(p.dtype, at(p, grad_x, first * p.image_size()), call.dtype(), images * p.image_size());
    run_data(call.vendor, images, packed.data(), in.data(), out.data());
    out.store();
  });
}

void convolution_weight_gradient(const ConvolutionProblem& p, const void* x, const void* dy, void* grad_weight,
                                 bool accumulate) {
  if (p.weight_size() == 0) return;
  if (p.images == 0 || p.image_size() == 0 || p.result_size() == 0) {
    if (!accumulate) zero(p, grad_weight, p.weight_size());
    return;
  }
  if (p.dtype == float64)
    return plain_convolution_weight_gradient(p, doubles(x), doubles(dy), doubles(grad_weight), accumulate);

  // Each chunk writes a whole gradient, so a large weight asks for larger chunks.
  const auto weight_bytes = static_cast<std::int64_t>(sizeof(float)) * p.weight_size();
  const Call call = make_call(ConvolutionPass::weight, p, x, std::max(chunk_bytes, 2 * weight_bytes));
  const Chunks& chunks = call.chunks;
  const std::int64_t size = packed_weight_bytes(call.vendor) / static_cast<std::int64_t>(sizeof(float));
  // Chunks add up in order within a partial sum, then the partial sums do.
  const std::int64_t sums = std::min(chunks.count, std::clamp<std::int64_t>(sums_bytes / weight_bytes, 4, most_sums));
  const Scratch<float> partial(sums * size);
  parallel_for(sums, 1, [&](std::int64_t sum, std::int64_t) {
    const std::int64_t begin = chunks.count * sum / sums, end = chunks.count * (sum + 1) / sums;
    const Scratch<float> further(end - begin > 1 ? size : 0);
    float* const total = partial.data() + sum * size;
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * chunks.images, images = std::min(chunks.images, p.images - first);
      const Operand in(p.dtype, at(p, x, first * p.image_size()), call.dtype(), images * p.image_size());
      const Operand gradient(p.dtype, at(p, dy, first * p.result_size()), call.dtype(), images * p.result_size());
      float* const to = chunk == begin ? total : further.data();
      run_weight(call.vendor, images, in.data(), gradient.data(), to);
      if (chunk != begin) binary(Binary::add, float32, size, total, to, total);
    }
  });
  const Scratch<float> summed(sums > 1 ? size : 0);
  if (sums > 1) column_sum(float32, sums, size, partial.data(), summed.data());
  const float* const packed = sums > 1 ? summed.data() : partial.data();
  if (p.dtype == float32 && !accumulate) return unpack_weight(call.vendor, packed, static_cast<float*>(grad_weight));
  const Scratch<float> gradient(p.weight_size());
  unpack_weight(call.vendor, packed, gradient.data());
  store_gradient(p, gradient.data(), grad_weight, accumulate);
}

}  // namespace everyo::kernels
