#include "everyo/error.h"

#include <gtest/gtest.h>

namespace everyo {
namespace {

template <class E>
void expect_caught_as_itself(ErrorKind kind) {
  try {
    throw E("[op] text");
  } catch (const Error& error) {
    EXPECT_NE(dynamic_cast<const E*>(&error), nullptr);
    EXPECT_EQ(error.kind(), kind);
    EXPECT_STREQ(error.what(), "[op] text");
  }
}

TEST(Error, EachTypeHasItsKind) {
  expect_caught_as_itself<ShapeError>(ErrorKind::shape);
  expect_caught_as_itself<DTypeError>(ErrorKind::dtype);
  expect_caught_as_itself<ValueError>(ErrorKind::value);
  expect_caught_as_itself<StateError>(ErrorKind::state);
  expect_caught_as_itself<FileError>(ErrorKind::serialization);
  EXPECT_EQ(Error("x").kind(), ErrorKind::backend);
  EXPECT_EQ(FileError("x", ErrorKind::file_not_found).kind(), ErrorKind::file_not_found);
}

}  // namespace
}  // namespace everyo
