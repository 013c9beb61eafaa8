#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "everyo/export.h"

// How a convolution's or a pool's window moves over an image.
namespace everyo::inline v1 {

/// Two sizes in cells; one number stands for both.
struct Size2D {
  std::int64_t height = 1;
  std::int64_t width = 1;

  Size2D() = default;
  Size2D(std::int64_t both) : height(both), width(both) {}  // NOLINT: `.stride = 2`
  Size2D(std::int64_t of_height, std::int64_t of_width) : height(of_height), width(of_width) {}
  friend bool operator==(const Size2D&, const Size2D&) = default;
};

/// What surrounds an image before a window moves over it: nothing ("valid"); as much as gives ceil(size / stride)
/// outputs, an odd cell going to the bottom and right ("same"); or so many cells on each side.
struct EVERYO_API Padding {
  enum class Kind : std::uint8_t { cells, same };
  Kind kind = Kind::cells;
  std::int64_t top = 0;
  std::int64_t bottom = 0;
  std::int64_t left = 0;
  std::int64_t right = 0;

  Padding() = default;
  /// The same on all four sides.
  Padding(std::int64_t cells) : top(cells), bottom(cells), left(cells), right(cells) {}  // NOLINT: `.padding = 1`
  Padding(int cells) : Padding(std::int64_t{cells}) {}  // NOLINT: a literal 0 is a null pointer as well
  Padding(std::nullptr_t) = delete;
  Padding(std::int64_t at_top, std::int64_t at_bottom, std::int64_t at_left, std::int64_t at_right)
      : top(at_top), bottom(at_bottom), left(at_left), right(at_right) {}
  /// "valid" or "same", in any case. Throws ShapeError "Unknown padding".
  Padding(std::string_view word);                                 // NOLINT: `.padding = "same"`
  Padding(const char* word) : Padding(std::string_view(word)) {}  // NOLINT
  friend bool operator==(const Padding&, const Padding&) = default;
};

}  // namespace everyo::inline v1
