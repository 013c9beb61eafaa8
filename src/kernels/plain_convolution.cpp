#include "kernels/plain_convolution.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t block_work = 1 << 16;  // products that are worth a thread

// The cell of the image that tap `tap` of the window at `position` sees; -1 in the padding.
std::int64_t cell_of(const ConvolutionAxis& axis, std::int64_t position, std::int64_t tap) {
  const std::int64_t cell = position * axis.stride + tap * axis.dilation - axis.before;
  return cell >= 0 && cell < axis.input ? cell : -1;
}
// The position whose tap `tap` sees `cell`; -1 if there is none.
std::int64_t position_of(const ConvolutionAxis& axis, std::int64_t cell, std::int64_t tap) {
  const std::int64_t way = cell + axis.before - tap * axis.dilation;
  if (way < 0 || way % axis.stride != 0) return -1;
  const std::int64_t position = way / axis.stride;
  return position < axis.output ? position : -1;
}

std::int64_t rows_a_block(std::int64_t work_a_row) {
  return std::max<std::int64_t>(1, block_work / std::max<std::int64_t>(1, work_a_row));
}

}  // namespace

void plain_convolution(const ConvolutionProblem& p, const double* x, const double* weight, const double* bias,
                       double* y) {
  const ConvolutionAxis &h = p.height, &w = p.width;
  const std::int64_t c = p.channels / p.groups, o = p.outputs / p.groups;
  const auto position = [&](std::int64_t image, std::int64_t row, std::int64_t column, double* sums) {
    for (std::int64_t k = 0; k < p.outputs; ++k) sums[k] = 0;
    for (std::int64_t i = 0; i < h.window; ++i) {
      const std::int64_t y_cell = cell_of(h, row, i);
      if (y_cell < 0) continue;
      for (std::int64_t j = 0; j < w.window; ++j) {
        const std::int64_t x_cell = cell_of(w, column, j);
        if (x_cell < 0) continue;
        const double* const cell = x + ((image * h.input + y_cell) * w.input + x_cell) * p.channels;
        const double* const tap = weight + (i * w.window + j) * c * p.outputs;
        for (std::int64_t g = 0; g < p.groups; ++g)
          for (std::int64_t d = 0; d < c; ++d) {
            const double value = cell[g * c + d];
            const double* const row_of_tap = tap + d * p.outputs + g * o;
            for (std::int64_t k = 0; k < o; ++k) sums[g * o + k] += value * row_of_tap[k];
          }
      }
    }
    if (bias)
      for (std::int64_t k = 0; k < p.outputs; ++k) sums[k] += bias[k];
  };
  parallel_for(p.images * h.output, rows_a_block(w.output * p.weight_size()),
               [&](std::int64_t first, std::int64_t end) {
                 for (std::int64_t row = first; row < end; ++row)
                   for (std::int64_t column = 0; column < w.output; ++column)
                     position(row / h.output, row % h.output, column, y + (row * w.output + column) * p.outputs);
               });
}

void plain_convolution_data_gradient(const ConvolutionProblem& p, const double* weight, const double* dy,
                                     double* grad_x) {
  const ConvolutionAxis &h = p.height, &w = p.width;
  const std::int64_t c = p.channels / p.groups, o = p.outputs / p.groups;
  const auto cell = [&](std::int64_t image, std::int64_t row, std::int64_t column, double* sums) {
    for (std::int64_t d = 0; d < p.channels; ++d) sums[d] = 0;
    for (std::int64_t i = 0; i < h.window; ++i) {
      const std::int64_t at_row = position_of(h, row, i);
      if (at_row < 0) continue;
      for (std::int64_t j = 0; j < w.window; ++j) {
        const std::int64_t at_column = position_of(w, column, j);
        if (at_column < 0) continue;
        const double* const gradient = dy + ((image * h.output + at_row) * w.output + at_column) * p.outputs;
        const double* const tap = weight + (i * w.window + j) * c * p.outputs;
        for (std::int64_t d = 0; d < p.channels; ++d) {
          const std::int64_t from = d / c * o;  // the first output of this channel's group
          const double* const row_of_tap = tap + d % c * p.outputs + from;
          double sum = 0;
          for (std::int64_t k = 0; k < o; ++k) sum += row_of_tap[k] * gradient[from + k];
          sums[d] += sum;
        }
      }
    }
  };
  parallel_for(p.images * h.input, rows_a_block(w.input * p.weight_size()), [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row)
      for (std::int64_t column = 0; column < w.input; ++column)
        cell(row / h.input, row % h.input, column, grad_x + (row * w.input + column) * p.channels);
  });
}

void plain_convolution_weight_gradient(const ConvolutionProblem& p, const double* x, const double* dy,
                                       double* grad_weight, bool accumulate) {
  const ConvolutionAxis &h = p.height, &w = p.width;
  const std::int64_t c = p.channels / p.groups, o = p.outputs / p.groups;
  // Row r of the weight [KH KW C/G, O]: one tap's products with one channel of each group.
  const auto row_sums = [&](std::int64_t i, std::int64_t j, std::int64_t d, double* sums) {
    for (std::int64_t k = 0; k < p.outputs; ++k) sums[k] = 0;
    for (std::int64_t at = 0; at < p.images * h.output; ++at) {
      const std::int64_t y_cell = cell_of(h, at % h.output, i);
      if (y_cell < 0) continue;
      const std::int64_t image_row = at / h.output * h.input + y_cell;
      for (std::int64_t column = 0; column < w.output; ++column) {
        const std::int64_t x_cell = cell_of(w, column, j);
        if (x_cell < 0) continue;
        const double* const cell = x + (image_row * w.input + x_cell) * p.channels + d;
        const double* const gradient = dy + (at * w.output + column) * p.outputs;
        for (std::int64_t g = 0; g < p.groups; ++g)
          for (std::int64_t k = g * o; k < (g + 1) * o; ++k) sums[k] += cell[g * c] * gradient[k];
      }
    }
  };
  const std::int64_t work = p.images * h.output * w.output * p.outputs;
  parallel_for(h.window * w.window * c, rows_a_block(work), [&](std::int64_t first, std::int64_t end) {
    const Scratch<double> sums(p.outputs);
    for (std::int64_t row = first; row < end; ++row) {
      row_sums(row / c / w.window, row / c % w.window, row % c, sums.data());
      double* const out = grad_weight + row * p.outputs;
      for (std::int64_t k = 0; k < p.outputs; ++k) out[k] = accumulate ? out[k] + sums.data()[k] : sums.data()[k];
    }
  });
}

}  // namespace everyo::kernels
