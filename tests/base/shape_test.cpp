#include "everyo/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "everyo/error.h"

namespace everyo {
namespace {

static_assert(Shape{}.rank() == 0 && Shape{}.elements() == 1);
static_assert(Shape{2, 3}.elements() == 6 && Shape{2, 3}[-1] == 3 && Shape{2, 3}[0] == 2);
static_assert(Shape{2, 0, 3}.elements() == 0);
static_assert(Shape{2, 3} != Shape{3, 2} && Shape{2} != Shape{2, 1} && Shape{2, 3} == Shape{2, 3});
static_assert(Spec{bfloat16, {4, 3}}.bytes() == 24);

TEST(Shape, PrintsAsATuple) {
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{3}), "(3,)");
  EXPECT_EQ(to_string(Shape{2, 3}), "(2, 3)");
  EXPECT_EQ(to_string(Shape{2, 0, 7}), "(2, 0, 7)");
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_NO_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW((Shape{2, -1}), ShapeError);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}), ShapeError);
  EXPECT_NO_THROW((Shape{std::int64_t{1} << 30, std::int64_t{1} << 29}));
  EXPECT_THROW((Shape{std::int64_t{1} << 30, std::int64_t{1} << 30}), ShapeError);
  EXPECT_NO_THROW((Shape{0, std::int64_t{1} << 58}));
  EXPECT_THROW((Shape{0, std::int64_t{1} << 58, std::int64_t{1} << 58}), ShapeError);  // flattened, it would overflow
  const std::vector<std::int64_t> nine(9, 1);
  EXPECT_THROW(Shape{std::span(nine)}, ShapeError);
  Shape shape{4};
  shape.push_back(5);
  EXPECT_EQ(shape, (Shape{4, 5}));
}

TEST(Shape, ASizeChangesWithinTheLimits) {
  Shape shape{2, 3, 0};
  shape.set(-1, 5);
  shape.set(0, 7);
  EXPECT_EQ(shape, (Shape{7, 3, 5}));
  EXPECT_THROW(shape.set(1, -1), ShapeError);
  EXPECT_THROW(shape.set(1, std::int64_t{1} << 58), ShapeError);
}

TEST(Shape, AxisCountsFromEitherEnd) {
  EXPECT_EQ(axis_of("sum", 1, 3), 1);
  EXPECT_EQ(axis_of("sum", -1, 3), 2);
  EXPECT_EQ(axis_of("sum", -3, 3), 0);
  for (const auto& [axis, rank] : {std::pair{3, 3}, {-4, 3}, {0, 0}}) {
    EXPECT_THROW(
        try { axis_of("sum", axis, rank); } catch (const ShapeError& error) {
          EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("[sum]"), testing::HasSubstr("out of range")));
          throw;
        },
        ShapeError);
  }
}

}  // namespace
}  // namespace everyo
