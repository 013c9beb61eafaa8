#include "everyo/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"

namespace everyo {
namespace {

constexpr std::array all{float32, float64, float16, bfloat16, int64, int32, uint8, boolean};
static_assert(all.size() == dtype_count);
static_assert(size_of(float64) == 8 && size_of(int32) == 4 && size_of(bfloat16) == 2 && size_of(boolean) == 1);
static_assert(is_floating(bfloat16) && !is_floating(int64) && is_half(float16) && !is_half(float32));
static_assert(dtype_v<const float> == float32 && dtype_v<bool> == boolean && dtype_v<BFloat16> == bfloat16);

TEST(DType, NamesReadBack) {
  for (const DType dtype : all) {
    EXPECT_EQ(dtype_of(name_of(dtype)), dtype);
    visit_dtype(dtype, [&]<class T>() {
      EXPECT_EQ(dtype_v<T>, dtype);
      EXPECT_EQ(sizeof(T), size_of(dtype));
    });
  }
  EXPECT_EQ(dtype_of("Float32"), float32);
  EXPECT_EQ(dtype_of("BOOL"), boolean);
}

TEST(DType, UnknownNameIsRefused) {
  for (const char* name : {"", "float", "float322", "complex64"}) {
    EXPECT_THROW(
        try { dtype_of(name); } catch (const DTypeError& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("bfloat16"));
          EXPECT_EQ(error.kind(), ErrorKind::dtype);
          throw;
        },
        DTypeError);
  }
}

TEST(DType, Promotion) {
  for (const DType a : all) {
    for (const DType b : all) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_EQ(promote(a, a), a);
      EXPECT_EQ(is_floating(promote(a, b)), is_floating(a) || is_floating(b));
    }
  }
  EXPECT_EQ(promote(boolean, uint8), uint8);
  EXPECT_EQ(promote(uint8, int32), int32);
  EXPECT_EQ(promote(int32, int64), int64);
  EXPECT_EQ(promote(int64, float16), float16);
  EXPECT_EQ(promote(float16, bfloat16), float32);
  EXPECT_EQ(promote(float16, float32), float32);
  EXPECT_EQ(promote(float32, float64), float64);
}

TEST(DType, FloatInfo) {
  EXPECT_EQ(finfo(float16).eps, 0x1p-10);
  EXPECT_EQ(finfo(float16).max, 65504);
  EXPECT_EQ(finfo(float16).smallest_normal, 0x1p-14);
  EXPECT_EQ(finfo(float16).smallest_subnormal, 0x1p-24);
  EXPECT_EQ(finfo(bfloat16).eps, 0.0078125);
  EXPECT_NEAR(finfo(bfloat16).max, 3.3895314e38, 1e31);  // as printed to 8 digits
  EXPECT_EQ(finfo(bfloat16).smallest_normal, finfo(float32).smallest_normal);
  EXPECT_EQ(finfo(float32).eps, 0x1p-23);
  EXPECT_EQ(finfo(float32).smallest_subnormal, 0x1p-149);
  EXPECT_EQ(finfo(float64).bits, 64);
  EXPECT_THROW(finfo(int32), DTypeError);
}

}  // namespace
}  // namespace everyo
