#include "kernels/index.h"

#include <gtest/gtest.h>

#include <vector>

#include "everyo/half.h"

namespace everyo {
namespace {

TEST(GatherRows, AnyAxisBothIndexTypesFromTheEnd) {
  const float x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};  // [2, 3, 2]
  const std::int64_t index[] = {2, -3, 2, 1};
  float out[16];
  const kernels::IndexedRows rows{.outer = 2, .limit = 3, .inner = 2, .count = 4, .index_dtype = int64, .index = index};
  kernels::gather_rows(rows, sizeof(float), x, out);
  EXPECT_EQ((std::vector<float>(out, out + 16)),
            (std::vector<float>{4, 5, 0, 1, 4, 5, 2, 3, 10, 11, 6, 7, 10, 11, 8, 9}));
  const std::int32_t narrow_index[] = {11, -12};
  const kernels::IndexedRows flat{
      .outer = 1, .limit = 12, .inner = 1, .count = 2, .index_dtype = int32, .index = narrow_index};
  kernels::gather_rows(flat, sizeof(float), x, out);
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 0);
}

TEST(GatherRows, BackwardSumsRepeatedRowsAndClearsTheOthers) {
  const std::int64_t index[] = {2, 0, 2, -1};
  const float grad[] = {1, 2, 3, 4, 10, 20, 100, 200};  // [4, 2]
  float grad_x[8];
  const kernels::IndexedRows rows{.outer = 1, .limit = 4, .inner = 2, .count = 4, .index_dtype = int64, .index = index};
  kernels::gather_rows_backward(rows, float32, grad, grad_x);
  EXPECT_EQ((std::vector<float>(grad_x, grad_x + 8)), (std::vector<float>{3, 4, 0, 0, 11, 22, 100, 200}));
}

// One row named 4096 times: a float16 accumulator would stall at 2048.
TEST(GatherRows, BackwardOfHalvesAccumulatesWide) {
  const std::vector<std::int32_t> index(4096, 1);
  const std::vector<Float16> grad(4096, to_float16(1));
  Float16 grad_x[2];
  const kernels::IndexedRows rows{
      .outer = 1, .limit = 2, .inner = 1, .count = 4096, .index_dtype = int32, .index = index.data()};
  kernels::gather_rows_backward(rows, float16, grad.data(), grad_x);
  EXPECT_EQ(to_float(grad_x[1]), 4096);
  EXPECT_EQ(to_float(grad_x[0]), 0);
}

TEST(Indices, TheFirstOneOutOfRangeIsFound) {
  const std::int64_t index[] = {0, -3, 2, 3, -4};
  EXPECT_EQ(kernels::find_bad_index(int64, index, 5, -3, 3), 3);
  EXPECT_EQ(kernels::find_bad_index(int64, index, 3, -3, 3), -1);
  EXPECT_EQ(kernels::find_bad_index(int64, index, 3, 0, 3), 1);
  EXPECT_EQ(kernels::index_at(int64, index, 4), -4);
}

TEST(OneHot, EveryDtype) {
  const std::int32_t index[] = {2, 0};
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean}) {
    std::vector<std::byte> out(6 * size_of(dtype));
    kernels::one_hot(int32, index, 2, 3, dtype, out.data());
    visit_dtype(dtype, [&]<class T>() {
      const T* p = reinterpret_cast<const T*>(out.data());
      for (int i = 0; i < 6; ++i) EXPECT_EQ(static_cast<double>(widen(p[i])), i == 2 || i == 3 ? 1 : 0);
    });
  }
}

TEST(Fill, ValuesAreRoundedOnce) {
  std::vector<float> x(100000);
  kernels::fill(float32, x.data(), 100000, 0.1);
  for (const float v : x) ASSERT_EQ(v, 0.1f);
  Float16 h[3];
  kernels::fill(float16, h, 3, 2049);  // a tie, to even
  EXPECT_EQ(to_float(h[2]), 2048);
  std::int64_t steps[4];
  kernels::arange(int64, steps, 4, 5, -2);
  EXPECT_EQ((std::vector<std::int64_t>(steps, steps + 4)), (std::vector<std::int64_t>{5, 3, 1, -1}));
  float fine[4];
  kernels::arange(float32, fine, 4, 0, 0.1);
  EXPECT_EQ(fine[3], 0.3f);  // summing 0.1f three times gives 0.3 + 1 ulp
}

}  // namespace
}  // namespace everyo
