#include "ops/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"

namespace everyo {
namespace {

struct Axis {
  std::int64_t output, before, after;
  friend bool operator==(const Axis&, const Axis&) = default;
};
void PrintTo(const Axis& a, std::ostream* out) { *out << a.output << " (" << a.before << ", " << a.after << ")"; }

Axis axis(std::int64_t size, std::int64_t window, const WindowOptions& options) {
  const WindowAxes axes = window_axes("pool", size, size, window, options);
  EXPECT_EQ(axes.height.output, axes.width.output);
  return {axes.height.output, axes.height.before, axes.height.after};
}

TEST(Window, ValidFitsOnlyWholeWindows) {
  EXPECT_EQ(axis(7, 3, {}), (Axis{5, 0, 0}));
  EXPECT_EQ(axis(7, 3, {.stride = 3}), (Axis{2, 0, 0}));
  EXPECT_EQ(axis(7, 3, {.dilation = 3}), (Axis{1, 0, 0}));
  EXPECT_EQ(axis(2, 3, {}).output, 0);
}

TEST(Window, SameGivesTheOddCellToTheEnd) {
  EXPECT_EQ(axis(5, 3, {.padding = "same"}), (Axis{5, 1, 1}));
  EXPECT_EQ(axis(5, 4, {.padding = "Same"}), (Axis{5, 1, 2}));
  EXPECT_EQ(axis(6, 3, {.stride = 2, .padding = "SAME"}), (Axis{3, 0, 1}));
  EXPECT_EQ(axis(5, 1, {.stride = 2, .padding = "same"}), (Axis{3, 0, 0}));
  EXPECT_EQ(axis(5, 3, {.padding = "same", .dilation = 2}), (Axis{5, 2, 2}));
}

TEST(Window, CeilModeAddsAWindowThatStartsInTheImage) {
  EXPECT_EQ(axis(6, 3, {.stride = 2}), (Axis{2, 0, 0}));
  EXPECT_EQ(axis(6, 3, {.stride = 2, .ceil_mode = true}), (Axis{3, 0, 1}));
  EXPECT_EQ(axis(7, 3, {.stride = 2, .ceil_mode = true}), (Axis{3, 0, 0}));
  // 4 cells and 1 of padding, windows of 2 by 3: a third would start at cell 6 of 6.
  EXPECT_EQ(axis(4, 2, {.stride = 3, .padding = 1, .ceil_mode = true}), (Axis{2, 1, 1}));
  // The third would start at cell 4, which is padding.
  EXPECT_EQ(axis(3, 2, {.stride = 2, .padding = 1, .ceil_mode = true}), (Axis{2, 1, 1}));
}

TEST(Window, PaddingIsAnyNumberOrAWord) {
  EXPECT_EQ(axis(7, 3, {.padding = 0}), (Axis{5, 0, 0}));
  EXPECT_EQ(axis(7, 3, {.padding = 1}), (Axis{7, 1, 1}));
  EXPECT_EQ(axis(7, 3, {.padding = std::int64_t{1}}), (Axis{7, 1, 1}));
  static_assert(!std::is_constructible_v<Padding, std::nullptr_t>);
}

TEST(Window, HeightAndWidthAreSeparate) {
  const WindowAxes axes =
      window_axes("pool", 8, 5, {2, 3}, {.stride = {2, 1}, .padding = Padding(1, 0, 0, 2), .dilation = {3, 1}});
  EXPECT_EQ(axes.height.output, 3);
  EXPECT_EQ(axes.height.before, 1);
  EXPECT_EQ(axes.width.output, 5);
  EXPECT_EQ(axes.width.after, 2);
}

void expect_refused(Size2D window, const WindowOptions& options, const char* words) {
  try {
    (void)window_axes("pool", 8, 8, window, options);
    FAIL() << "not refused: " << words;
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(words));
    EXPECT_THAT(error.what(), testing::HasSubstr("[pool]"));
  }
}

TEST(Window, BadSizesAreRefused) {
  expect_refused({0, 2}, {}, "(0, 2); both must be positive");
  expect_refused(2, {.stride = -1}, "stride is (-1, -1); both must be positive");
  expect_refused(2, {.dilation = {1, 0}}, "dilation is (1, 0); both must be positive");
  expect_refused(2, {.stride = std::int64_t{1} << 40}, "below 2^31");
  expect_refused(2, {.padding = Padding(0, 0, -3, 0)}, "must not be negative");
  EXPECT_THROW((void)Padding("full"), ShapeError);
}

}  // namespace
}  // namespace everyo
