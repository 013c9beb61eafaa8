#include "ops/pool_shape.h"

#include <fmt/format.h>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

std::int64_t extent(std::int64_t window, std::int64_t dilation) { return (window - 1) * dilation + 1; }

// A dilated window may step over a whole image.
void require_cells(std::string_view op, std::string_view side, const kernels::PoolAxis& axis) {
  if (axis.dilation == 1) return;  // with less padding than cells in a window, each sees one
  for (std::int64_t o = 0; o < axis.output; ++o) {
    if (axis.cells(o).count > 0) continue;
    throw ShapeError(
        fmt::format("[{}] window {} along the {} of {} cells sees none of them, with dilation {} and padding {}; each "
                    "must see one; take less padding or a smaller dilation",
                    op, o, side, axis.input, axis.dilation, axis.before));
  }
}

}  // namespace

void require_pool(std::string_view op, Size2D window, const WindowOptions& options) {
  window_axes(op, 1, 1, window, options);
  const Padding& p = options.padding;
  const Size2D reach(extent(window.height, options.dilation.height), extent(window.width, options.dilation.width));
  if (std::max(p.top, p.bottom) < reach.height && std::max(p.left, p.right) < reach.width) return;
  throw ShapeError(
      fmt::format("[{}] padding is ({}, {}, {}, {}) at top, bottom, left, right and a window reaches over ({}, {}) "
                  "cells; padding must be smaller, else a window lies wholly in it; take less padding",
                  op, p.top, p.bottom, p.left, p.right, reach.height, reach.width));
}

kernels::PoolShape pool_shape(std::string_view op, const Shape& x, Size2D window, const WindowOptions& options) {
  if (x.rank() != 4)
    throw ShapeError(fmt::format("[{}] x has shape {}; it must be a 4-D tensor, (batch, height, width, channels)", op,
                                 to_string(x)));
  require_pool(op, window, options);
  const WindowAxes axes = window_axes(op, x[1], x[2], window, options);
  const Padding& p = options.padding;
  if (axes.height.output <= 0 || axes.width.output <= 0)
    throw ShapeError(
        fmt::format("[{}] the window ({}, {}) reaches over ({}, {}) cells, larger than the padded image ({}, {}); take "
                    "a smaller window or more padding",
                    op, window.height, window.width, axes.height.extent(), axes.width.extent(), x[1] + p.top + p.bottom,
                    x[2] + p.left + p.right));
  // Padding as it was asked for: what ceil mode adds behind it counts for no average.
  const bool same = p.kind == Padding::Kind::same;
  const auto axis = [](const WindowAxis& a, std::int64_t after) {
    return kernels::PoolAxis{a.input, a.output, a.window, a.stride, a.dilation, a.before, after};
  };
  const kernels::PoolShape s{x[0], x[3], axis(axes.height, same ? axes.height.after : p.bottom),
                             axis(axes.width, same ? axes.width.after : p.right)};
  require_cells(op, "height", s.height);
  require_cells(op, "width", s.width);
  return s;
}

double cells_seen(const kernels::PoolShape& s) {
  const auto along = [](const kernels::PoolAxis& axis) {
    std::int64_t cells = 0;
    for (std::int64_t o = 0; o < axis.output; ++o) cells += axis.cells(o).count;
    return static_cast<double>(cells);
  };
  return static_cast<double>(s.batch * s.channels) * along(s.height) * along(s.width);
}

}  // namespace everyo::inline v1
