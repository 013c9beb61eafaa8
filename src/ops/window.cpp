#include "ops/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

// Sizes of more cells than this are a caller's mistake, and could overflow below.
constexpr std::int64_t most_cells = std::int64_t{1} << 31;

void require_positive(std::string_view op, std::string_view what, Size2D size) {
  if (size.height > 0 && size.width > 0 && size.height < most_cells && size.width < most_cells) return;
  throw ShapeError(
      fmt::format("[{}] {} is ({}, {}); both must be positive and below 2^31", op, what, size.height, size.width));
}

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

WindowAxis same_axis(WindowAxis axis) {
  axis.output = ceil_divide(axis.input, axis.stride);
  const std::int64_t padding = std::max<std::int64_t>((axis.output - 1) * axis.stride + axis.extent() - axis.input, 0);
  axis.before = padding / 2;
  axis.after = padding - axis.before;
  return axis;
}

WindowAxis padded_axis(WindowAxis axis, bool ceil_mode) {
  const std::int64_t room = axis.input + axis.before + axis.after - axis.extent();
  if (room < 0) {
    axis.output = 0;
    return axis;
  }
  axis.output = room / axis.stride + 1;
  if (!ceil_mode || room % axis.stride == 0) return axis;
  const std::int64_t next_start = axis.output * axis.stride;
  if (next_start >= axis.before + axis.input) return axis;  // it would see no cell of the image
  ++axis.output;
  axis.after = next_start + axis.extent() - axis.before - axis.input;
  return axis;
}

}  // namespace

Padding::Padding(std::string_view word) {
  std::string lower(word);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "same") {
    kind = Kind::same;
  } else if (lower != "valid") {
    throw ShapeError(fmt::format("[padding] Unknown padding '{}'; it is 'valid', 'same' or a number of cells", word));
  }
}

AttributeValue attribute_of(const Size2D& size) { return std::vector{size.height, size.width}; }
AttributeValue attribute_of(const Padding& padding) {
  if (padding.kind == Padding::Kind::same) return std::string("same");
  return std::vector{padding.top, padding.bottom, padding.left, padding.right};
}

WindowAxes window_axes(std::string_view op, std::int64_t height, std::int64_t width, Size2D window,
                       const WindowOptions& options) {
  require_positive(op, "the window", window);
  require_positive(op, "stride", options.stride);
  require_positive(op, "dilation", options.dilation);
  const Padding& padding = options.padding;
  for (const std::int64_t cells : {padding.top, padding.bottom, padding.left, padding.right}) {
    if (cells >= 0 && cells < most_cells) continue;
    throw ShapeError(
        fmt::format("[{}] padding is ({}, {}, {}, {}) at top, bottom, left, right; it must not be negative"
                    " nor reach 2^31",
                    op, padding.top, padding.bottom, padding.left, padding.right));
  }
  const auto axis = [&](std::int64_t input, std::int64_t cells, std::int64_t stride, std::int64_t dilation,
                        std::int64_t before, std::int64_t after) {
    const WindowAxis given{input, cells, stride, dilation, before, after};
    return padding.kind == Padding::Kind::same ? same_axis(given) : padded_axis(given, options.ceil_mode);
  };
  return {axis(height, window.height, options.stride.height, options.dilation.height, padding.top, padding.bottom),
          axis(width, window.width, options.stride.width, options.dilation.width, padding.left, padding.right)};
}

}  // namespace everyo::inline v1
