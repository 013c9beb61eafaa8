#pragma once
#include <string_view>

#include "everyo/attributes.h"
#include "everyo/shape.h"
#include "everyo/window.h"

// The arithmetic of windows that convolutions and pools share. L: an image's cells along one axis.
namespace everyo::inline v1 {

/// One axis of a window's way: `output` positions, the first `before` cells in front of the image, the last reaching
/// at most `after` cells behind it.
struct WindowAxis {
  std::int64_t input = 0;
  std::int64_t window = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::int64_t output = 0;

  /// Cells from the window's first to its last.
  [[nodiscard]] std::int64_t extent() const noexcept { return (window - 1) * dilation + 1; }
};
struct WindowAxes {
  WindowAxis height, width;
};

struct WindowOptions {
  Size2D stride = 1;
  Padding padding{};
  Size2D dilation = 1;
  bool ceil_mode = false;  ///< also a last window that reaches behind the padding, if it starts in front of it
};

/// [height, width].
AttributeValue attribute_of(const Size2D& size);
/// "same", or [top, bottom, left, right].
AttributeValue attribute_of(const Padding& padding);

/// Where windows lie over an image [.., L height, L width, C]. Throws ShapeError: "must be positive" for window, stride
/// and dilation, "not be negative" for padding; a window larger than the padded image is the caller's to refuse, whose
/// words differ: then `output` is 0 or less.
WindowAxes window_axes(std::string_view op, std::int64_t height, std::int64_t width, Size2D window,
                       const WindowOptions& options);

}  // namespace everyo::inline v1
