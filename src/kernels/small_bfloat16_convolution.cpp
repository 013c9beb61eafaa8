#include "kernels/small_bfloat16_convolution.h"

#include "kernels/isa.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/bfloat16_vector.h"
#include "kernels/scratch.h"

// A window is runs of neighbours in the image, and VDPBF16PS multiplies and adds pairs of neighbours: as they lie, and
// the last of an odd run with a zero, not with what comes behind it. The weight is packed in such pairs.
namespace everyo::kernels {
namespace {

using Half = std::uint16_t;
using Pair = std::uint32_t;
constexpr std::int64_t lanes = 16;
constexpr std::size_t most_pixels = 12;  // by two vectors: with a row of the weight and an element, the registers

// What all tiles of a call share: steps and lengths in elements of the padded image.
struct Work {
  std::int64_t rows, row_step, columns, column_step, length;
  const Pair* weight;
  std::int64_t outputs, weight_row;
  const float* bias;
  bool relu;
};

// to[pair][output] of one run: a pair of rows of the weight, which are bfloat16 exactly.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_run(const float* weight, std::int64_t length,
                                                           std::int64_t outputs, std::int64_t to_row, Pair* to) {
  for (std::int64_t k = 0; k < length; k += 2, weight += 2 * outputs, to += to_row) {
    for (std::int64_t o = 0; o < to_row; o += lanes) {
      const __mmask16 mask = first_lanes(outputs - o);
      const __m512i low = _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, weight + o));
      const __m512i high = k + 1 < length ? _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, weight + outputs + o))
                                          : _mm512_setzero_si512();
      _mm512_storeu_si512(to + o, _mm512_or_si512(_mm512_maskz_srli_epi32(mask, low, 16), high));
    }
  }
}

// With masks, since g++ takes the unused operand of the forms without for a mistake.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m256i rounded(__m512 v) {
  return _mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_srli_epi32(0xffff, float_to_upper_bfloat16(v), 16));
}

template <std::size_t pixels, std::size_t vectors>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::always_inline]] inline void multiply(
    const Half* const* pixel, std::int64_t at, bool single, const Pair* weight, __m512 (&sum)[pixels][vectors]) {
  __m512i right[vectors];
#pragma GCC unroll 2
  for (std::size_t v = 0; v < vectors; ++v) right[v] = _mm512_loadu_si512(weight + 16 * v);
#pragma GCC unroll 12
  for (std::size_t m = 0; m < pixels; ++m) {
    int pair = pixel[m][at];
    if (!single) std::memcpy(&pair, pixel[m] + at, sizeof pair);
    const __m512i left = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v)
      sum[m][v] = _mm512_dpbf16_ps(sum[m][v], reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right[v]));
  }
}

// Results of so many places of the image, one after another: pixel[m] points to the first element of its window.
template <std::size_t pixels, std::size_t vectors>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::noinline]] void run_tile(const Work& w,
                                                                                     const Half* const* pixel,
                                                                                     Half* y) {
  __m512 sum[pixels][vectors];
#pragma GCC unroll 12
  for (std::size_t m = 0; m < pixels; ++m) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) sum[m][v] = _mm512_setzero_ps();
  }
  const Pair* weight = w.weight;
  for (std::int64_t row = 0; row < w.rows; ++row) {
    for (std::int64_t column = 0; column < w.columns; ++column) {
      const std::int64_t begin = row * w.row_step + column * w.column_step, end = begin + w.length;
      std::int64_t at = begin;
      for (; at + 2 <= end; at += 2, weight += w.weight_row) multiply(pixel, at, false, weight, sum);
      if (at == end) continue;
      multiply(pixel, at, true, weight, sum);
      weight += w.weight_row;
    }
  }
#pragma GCC unroll 2
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto first = static_cast<std::int64_t>(16 * v);
    const __mmask16 mask = first_lanes(w.outputs - first);
    const __m512 bias = w.bias ? _mm512_maskz_loadu_ps(mask, w.bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (std::size_t m = 0; m < pixels; ++m) {
      __m512 result = w.bias ? _mm512_add_ps(sum[m][v], bias) : sum[m][v];
      const __mmask16 negative = _mm512_cmp_ps_mask(result, _mm512_setzero_ps(), _CMP_LT_OQ);  // not a NaN
      if (w.relu) result = _mm512_mask_mov_ps(result, negative, _mm512_setzero_ps());
      _mm256_mask_storeu_epi16(y + static_cast<std::int64_t>(m) * w.outputs + first, mask, rounded(result));
    }
  }
}

template <std::size_t vectors>
void run_pixels(const Work& w, const Half* const* pixel, std::size_t count, Half* y) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    constexpr void (*tiles[])(const Work&, const Half* const*, Half*) = {&run_tile<i + 1, vectors>...};
    tiles[count - 1](w, pixel, y);
  }
  (std::make_index_sequence<most_pixels>());
}

}  // namespace

bool small_bfloat16_convolution(const ConvolutionProblem& p, std::int64_t images, const BFloat16* x,
                                const float* weight, const float* bias, bool relu, BFloat16* y) {
  if (used_isa() < Isa::avx512_bf16) return false;
  const std::int64_t rows = p.height.input + p.height.before + p.height.after,
                     columns = p.width.input + p.width.before + p.width.after, padded_row = columns * p.channels,
                     image_row = p.width.input * p.channels;
  const bool pads = rows != p.height.input || columns != p.width.input;
  const Scratch<Half> room(pads ? rows * padded_row : 0);
  if (pads) std::fill_n(room.data(), rows * padded_row, Half{});
  Half* const inside = room.data() + p.height.before * padded_row + p.width.before * p.channels;

  const bool together = p.width.dilation == 1;  // else a window's columns are apart
  const std::int64_t length = (together ? p.width.window : 1) * p.channels, pairs = (length + 1) / 2,
                     runs = p.height.window * (together ? 1 : p.width.window),
                     weight_row = p.outputs > lanes ? 2 * lanes : lanes;
  const Scratch<Pair> packed(runs * pairs * weight_row);
  for (std::int64_t run = 0; run < runs; ++run)
    pack_run(weight + run * length * p.outputs, length, p.outputs, weight_row,
             packed.data() + run * pairs * weight_row);
  const Work work{.rows = p.height.window,
                  .row_step = p.height.dilation * padded_row,
                  .columns = together ? 1 : p.width.window,
                  .column_step = p.width.dilation * p.channels,
                  .length = length,
                  .weight = packed.data(),
                  .outputs = p.outputs,
                  .weight_row = weight_row,
                  .bias = bias,
                  .relu = relu};
  const auto run = p.outputs > lanes ? &run_pixels<2> : &run_pixels<1>;
  const Half* pixel[most_pixels];
  Half* to = &y->bits;
  std::size_t waiting = 0;
  const auto flush = [&] {
    if (waiting > 0) run(work, pixel, waiting, to);
    to += static_cast<std::int64_t>(std::exchange(waiting, 0)) * p.outputs;
  };
  for (std::int64_t i = 0; i < images; ++i) {
    const Half* const image = &x->bits + i * p.image_size();
    for (std::int64_t h = 0; pads && h < p.height.input; ++h)
      std::memcpy(inside + h * padded_row, image + h * image_row, static_cast<std::size_t>(image_row) * sizeof(Half));
    const Half* const from = pads ? room.data() : image;
    for (std::int64_t h = 0; h < p.height.output; ++h) {
      for (std::int64_t w = 0; w < p.width.output; ++w) {
        pixel[waiting++] = from + h * p.height.stride * padded_row + w * p.width.stride * p.channels;
        if (waiting == most_pixels) flush();
      }
    }
    flush();
  }
  return true;
}

}  // namespace everyo::kernels
#else
namespace everyo::kernels {
bool small_bfloat16_convolution(const ConvolutionProblem&, std::int64_t, const BFloat16*, const float*, const float*,
                                bool, BFloat16*) {
  return false;
}
}  // namespace everyo::kernels
#endif
