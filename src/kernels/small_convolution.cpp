#include "kernels/small_convolution.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/isa.h"
#include "kernels/scratch.h"
#include "kernels/small_bfloat16_convolution.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/small_convolution.cpp"
#include <hwy/foreach_target.h>

#include "kernels/epilogue-inl.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

using Lanes = WideTag<float>;
constexpr std::size_t width = hn::MaxLanes(Lanes());
constexpr std::size_t most_pixels = has_avx512 ? 8 : 6;  // by two vectors: within the registers

// What all tiles of a call share: steps and lengths in elements of the padded image.
struct Work {
  std::int64_t window_rows, row_step;
  std::int64_t window_columns, column_length, column_step;  // columns apart with dilation, else one of the whole row
  const float* weight;
  std::int64_t weight_row;
};

// The sums of a place, with bias and ReLU, rounded once to T.
template <class T>
HWY_INLINE void store_result(hn::Vec<Lanes> sum, T* to, std::size_t count, const float* bias, bool relu) {
  if (bias) sum = hn::Add(sum, load_first(bias, count));
  if (relu) sum = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(Lanes())), sum);  // keeps NaN
  store_first(sum, to, count);
}

// Results of up to most_pixels places of the image: pixel[m] points to the first element of its window.
template <std::size_t pixels, std::size_t vectors, class T>
HWY_INLINE void run_tile(const Work& w, const float* const* pixel, T* y, std::int64_t y_row, std::int64_t first,
                         std::size_t outputs, const float* bias, bool relu) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const std::size_t last = outputs - (vectors - 1) * width;
  const auto mask = hn::FirstN(d, last);
  V sum[pixels][vectors];
#pragma GCC unroll 8
  for (std::size_t m = 0; m < pixels; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) sum[m][v] = hn::Zero(d);
  }
  const float* weight = w.weight + first;
  for (std::int64_t row = 0; row < w.window_rows; ++row) {
    for (std::int64_t column = 0; column < w.window_columns; ++column) {
      const std::int64_t begin = row * w.row_step + column * w.column_step;
      for (std::int64_t k = begin; k < begin + w.column_length; ++k, weight += w.weight_row) {
        V right[vectors];
        if constexpr (vectors == 2) right[0] = hn::LoadU(d, weight);
        const float* tail = weight + (vectors - 1) * width;
        if constexpr (can_mask<float>)
          right[vectors - 1] = hn::MaskedLoad(mask, d, tail);
        else
          right[vectors - 1] = hn::LoadU(d, tail);  // the weight was padded
#pragma GCC unroll 8
        for (std::size_t m = 0; m < pixels; ++m) {
          const V left = hn::Set(d, pixel[m][k]);
#pragma GCC unroll 2
          for (std::size_t v = 0; v < vectors; ++v) sum[m][v] = hn::MulAdd(left, right[v], sum[m][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t m = 0; m < pixels; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      T* const to = y + static_cast<std::int64_t>(m) * y_row + first + static_cast<std::int64_t>(v * width);
      const float* const plus = bias ? bias + first + v * width : nullptr;
      store_result(sum[m][v], to, v + 1 == vectors ? last : width, plus, relu);
    }
  }
}

// `count` pixels, whose results lie one after another.
template <class T>
HWY_NOINLINE void run_pixels(const Work& w, const float* const* pixel, std::size_t count, std::int64_t outputs,
                             const float* bias, bool relu, T* y) {
  for (std::int64_t first = 0; first < outputs; first += 2 * static_cast<std::int64_t>(width)) {
    const auto left = static_cast<std::size_t>(std::min<std::int64_t>(outputs - first, 2 * width));
    const auto tile = [&]<std::size_t pixels>(std::size_t at) HWY_ATTR {
      T* const to = y + static_cast<std::int64_t>(at) * outputs;
      if (left > width)
        run_tile<pixels, 2>(w, pixel + at, to, outputs, first, left, bias, relu);
      else
        run_tile<pixels, 1>(w, pixel + at, to, outputs, first, left, bias, relu);
    };
    std::size_t at = 0;
    for (; at + most_pixels <= count; at += most_pixels) tile.template operator()<most_pixels>(at);
    for (; at + 2 <= count; at += 2) tile.template operator()<2>(at);
    if (at < count) tile.template operator()<1>(at);
  }
}

// An image within zeros [before + H + after, before + W + after, C].
struct Padded {
  std::int64_t rows, columns, channels;
  [[nodiscard]] std::int64_t size() const { return rows * columns * channels; }
};

template <class T>
void pad_image(const ConvolutionProblem& p, const Padded& padded, const T* image, float* to) {
  const std::int64_t row = p.width.input * p.channels, padded_row = padded.columns * padded.channels;
  float* inside = to + p.height.before * padded_row + p.width.before * p.channels;
  for (std::int64_t h = 0; h < p.height.input; ++h, inside += padded_row) {
    if constexpr (is_half_element<T>)
      copy_elements(image + h * row, inside, static_cast<std::size_t>(row));
    else
      std::memcpy(inside, image + h * row, static_cast<std::size_t>(row) * sizeof(float));
  }
}

template <class T>
void convolve_typed(const ConvolutionProblem& p, std::int64_t images, const T* x, const float* weight,
                    const float* bias, bool relu, T* y) {
  const Padded padded{p.height.input + p.height.before + p.height.after, p.width.input + p.width.before + p.width.after,
                      p.channels};
  const bool pads = padded.rows != p.height.input || padded.columns != p.width.input;
  const bool copies = pads || is_half_element<T>;
  const Scratch<float> room(copies ? padded.size() : 0);
  if (pads) std::memset(room.data(), 0, static_cast<std::size_t>(padded.size()) * sizeof(float));

  const std::int64_t terms = p.height.window * p.width.window * p.channels;
  constexpr auto lanes_per_vector = static_cast<std::int64_t>(width);
  const bool whole = can_mask<float> || p.outputs % lanes_per_vector == 0;
  const std::int64_t weight_row = whole ? p.outputs : (p.outputs / lanes_per_vector + 1) * lanes_per_vector;
  const Scratch<float> wide_weight(whole ? 0 : terms * weight_row);
  if (!whole) copy_rows(weight, p.outputs, terms, p.outputs, wide_weight.data(), weight_row, weight_row);

  const std::int64_t padded_row = padded.columns * p.channels;
  const bool together = p.width.dilation == 1;
  const Work work{.window_rows = p.height.window,
                  .row_step = p.height.dilation * padded_row,
                  .window_columns = together ? 1 : p.width.window,
                  .column_length = together ? p.width.window * p.channels : p.channels,
                  .column_step = p.width.dilation * p.channels,
                  .weight = whole ? weight : wide_weight.data(),
                  .weight_row = weight_row};
  constexpr std::size_t most = 8 * most_pixels;
  const float* pixel[most];
  for (std::int64_t i = 0; i < images; ++i) {
    const T* const image = x + i * p.image_size();
    const float* from = room.data();
    if (copies) pad_image(p, padded, image, room.data());
    if constexpr (!is_half_element<T>)
      if (!copies) from = image;
    T* const to = y + i * p.result_size();
    std::size_t waiting = 0;
    std::int64_t done = 0;
    for (std::int64_t h = 0; h < p.height.output; ++h) {
      for (std::int64_t w = 0; w < p.width.output; ++w) {
        pixel[waiting++] = from + h * p.height.stride * padded_row + w * p.width.stride * p.channels;
        if (waiting < most) continue;
        run_pixels(work, pixel, waiting, p.outputs, bias, relu, to + done * p.outputs);
        done += static_cast<std::int64_t>(std::exchange(waiting, 0));
      }
    }
    if (waiting > 0) run_pixels(work, pixel, waiting, p.outputs, bias, relu, to + done * p.outputs);
  }
}

void convolve(const ConvolutionProblem& p, std::int64_t images, const void* x, const float* weight, const float* bias,
              bool relu, void* y) {
  const auto typed = [&]<class T>(T) {
    convolve_typed(p, images, static_cast<const T*>(x), weight, bias, relu, static_cast<T*>(y));
  };
  switch (p.dtype) {
    case DType::float16: return typed(Float16());
    case DType::bfloat16: return typed(BFloat16());
    default: return typed(float());
  }
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {

HWY_EXPORT(convolve);

// Measured on AVX-512: from 2.3 times as quick as oneDNN (8x8x1->8, 4x4x8->16) to as quick at these bounds; behind them
// 0.8 to 1.0 times.
bool suits_small_convolution(const ConvolutionProblem& p) noexcept {
  return p.groups == 1 && p.outputs <= 32 && p.weight_size() <= 4096 &&
         p.image_size() + p.result_size() <= std::int64_t{1} << 14;
}

std::optional<ConvolutionProblem> data_gradient_as_convolution(const ConvolutionProblem& p) noexcept {
  const auto turned = [](const ConvolutionAxis& a) -> std::optional<ConvolutionAxis> {
    const std::int64_t before = (a.window - 1) * a.dilation - a.before;
    const std::int64_t after = a.input + (a.window - 1) * a.dilation - before - a.output;
    if (a.stride != 1 || before < 0 || after < 0) return {};
    return ConvolutionAxis{.input = a.output,
                           .window = a.window,
                           .dilation = a.dilation,
                           .before = before,
                           .after = after,
                           .output = a.input};
  };
  const auto height = turned(p.height), width = turned(p.width);
  if (p.groups != 1 || !height || !width) return {};
  return ConvolutionProblem{.dtype = p.dtype,
                            .images = p.images,
                            .channels = p.outputs,
                            .outputs = p.channels,
                            .height = *height,
                            .width = *width};
}

void flip_weight(const ConvolutionProblem& p, const float* weight, float* flipped) {
  const std::int64_t places = p.height.window * p.width.window, matrix = p.channels * p.outputs;
  for (std::int64_t place = 0; place < places; ++place) {
    const float* const from = weight + (places - 1 - place) * matrix;
    for (std::int64_t o = 0; o < p.outputs; ++o)
      for (std::int64_t c = 0; c < p.channels; ++c) *flipped++ = from[c * p.outputs + o];
  }
}

void small_convolution(const ConvolutionProblem& p, std::int64_t images, const void* x, const float* weight,
                       const float* bias, bool relu, void* y) {
  if (p.dtype == bfloat16 && small_bfloat16_convolution(p, images, static_cast<const BFloat16*>(x), weight, bias, relu,
                                                        static_cast<BFloat16*>(y)))
    return;
  use_isa();
  HWY_DYNAMIC_DISPATCH(convolve)(p, images, x, weight, bias, relu, y);
}

}  // namespace everyo::kernels
#endif
