#pragma once
#include <algorithm>
#include <cstdint>

#include "everyo/dtype.h"

// Pools over images: x [N, H, W, C] -> y [N, OH, OW, C], g is y's gradient. Halves are computed in float32 and rounded
// once. Each element is written by one thread and its sums have one order, so the bits are the same for any number of
// threads.
namespace everyo::kernels {

/// The cells of the image that one window sees along an axis: every dilation-th from `first` on. `tap` counts the
/// window's cells in front of them, which lie in the padding.
struct Cells {
  std::int64_t first, count, tap;
};
/// The windows that see one cell, along an axis: first..last, some of them only by a dilated window's gaps.
struct Windows {
  std::int64_t first, last;
};

/// One axis of a pool.
struct PoolAxis {
  std::int64_t input = 0, output = 0;
  std::int64_t window = 0;  ///< 0: adaptive, output i sees floor(i L / O) .. ceil((i + 1) L / O)
  std::int64_t stride = 1, dilation = 1;
  std::int64_t before = 0, after = 0;  ///< padding

  [[nodiscard]] std::int64_t extent() const noexcept { return (window - 1) * dilation + 1; }
  [[nodiscard]] Cells cells(std::int64_t o) const noexcept {
    if (window == 0) {
      const std::int64_t first = o * input / output;
      return {first, ((o + 1) * input + output - 1) / output - first, 0};
    }
    const std::int64_t start = o * stride - before;
    if (start >= 0 && start + extent() <= input) return {start, window, 0};
    const std::int64_t tap = start < 0 ? (dilation - 1 - start) / dilation : 0;
    const std::int64_t end = std::min(window, (input - start + dilation - 1) / dilation);
    return {start + tap * dilation, std::max<std::int64_t>(end - tap, 0), tap};
  }
  /// Cells of window o in the image and its padding, behind which a last window of ceil mode may reach.
  [[nodiscard]] std::int64_t padded_cells(std::int64_t o) const noexcept {
    const std::int64_t start = o * stride - before;
    return std::min(start + window, input + after) - start;
  }
  [[nodiscard]] Windows windows(std::int64_t cell) const noexcept {
    if (window == 0) return {cell * output / input, ((cell + 1) * output + input - 1) / input - 1};
    const std::int64_t at = cell + before, before_last = at - extent() + 1;
    return {before_last <= 0 ? 0 : (before_last + stride - 1) / stride, std::min(at / stride, output - 1)};
  }
  /// Which of window o's cells this one is; -1 for one in a gap. 0 when adaptive.
  [[nodiscard]] std::int64_t tap_of(std::int64_t cell, std::int64_t o) const noexcept {
    if (window == 0) return 0;
    const std::int64_t distance = cell + before - o * stride;
    if (dilation == 1) return distance;
    return distance % dilation == 0 ? distance / dilation : -1;
  }
  /// No cell lies in two windows, nor between two.
  [[nodiscard]] bool tiled() const noexcept {
    if (window == 0) return input % output == 0;
    return stride == window && dilation == 1 && before == 0;
  }
};

struct PoolShape {
  std::int64_t batch = 0, channels = 0;
  PoolAxis height, width;

  [[nodiscard]] bool tiled() const noexcept { return height.tiled() && width.tiled(); }
  /// What a backward goes through: rows of windows when they tile the image, else of cells.
  [[nodiscard]] std::int64_t backward_rows() const noexcept { return batch * (tiled() ? height.output : height.input); }
  /// Rows of one block of parallel work.
  [[nodiscard]] std::int64_t forward_grain() const noexcept {
    return rows_of(std::max(std::min(height.window, height.input) * std::min(width.window, width.input) * width.output,
                            rows_under_one() * width.input));
  }
  [[nodiscard]] std::int64_t backward_grain() const noexcept {
    return rows_of(tiled() ? rows_under_one() * width.input : width.input);
  }

 private:
  static constexpr std::int64_t block_elements = 32768;
  [[nodiscard]] std::int64_t rows_under_one() const noexcept {  // rows of cells that belong to a row of windows
    return std::max<std::int64_t>(height.input / height.output, 1);
  }
  [[nodiscard]] std::int64_t rows_of(std::int64_t cells) const noexcept {
    return std::max<std::int64_t>(block_elements / std::max<std::int64_t>(cells * channels, 1), 1);
  }
};

/// Winners are numbers of cells in their windows, row by row: bytes where every number fits, else int32.
constexpr DType winner_dtype(std::int64_t window_cells) noexcept { return window_cells <= 256 ? uint8 : int32; }
inline constexpr std::int64_t most_window_cells = std::int64_t{1} << 24;  ///< for max_pool: counted in float32

/// Greatest of each window, which must see a cell, and if `winners` [N, OH, OW, C] is not null the first cell that has
/// it; NaN is greater than any number.
void max_pool(DType dtype, const PoolShape& shape, const void* x, void* y, void* winners);
/// grad_x: each cell the sum of g over the windows it won.
void max_pool_backward(DType dtype, const PoolShape& shape, const void* winners, const void* grad, void* grad_x);

/// Mean of each window's cells in the image; with `count_padding` the sum over the cells in image and padding.
void average_pool(DType dtype, const PoolShape& shape, bool count_padding, const void* x, void* y);
void average_pool_backward(DType dtype, const PoolShape& shape, bool count_padding, const void* grad, void* grad_x);

}  // namespace everyo::kernels
