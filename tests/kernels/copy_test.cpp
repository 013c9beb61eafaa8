#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "everyo/context.h"

namespace everyo {
namespace {

using kernels::Strides;

// Every index of a shape, in row-major order.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(shape.rank()), 0);
  for (std::int64_t n = shape.elements(); n > 0; --n) {
    f(at);
    for (std::int64_t d = shape.rank() - 1; d >= 0; --d) {
      auto& i = at[static_cast<std::size_t>(d)];
      if (++i < shape[d]) break;
      i = 0;
    }
  }
}
std::int64_t offset(const std::vector<std::int64_t>& at, const Strides& strides) {
  return std::inner_product(at.begin(), at.end(), strides.begin(), std::int64_t{0});
}

template <class T>
void check_transposes(const Shape& shape) {
  std::vector<T> x(static_cast<std::size_t>(shape.elements()));
  std::iota(x.begin(), x.end(), T{});
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(shape.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  do {
    std::vector<T> out(x.size());
    kernels::transpose(shape, permutation, sizeof(T), x.data(), out.data());
    Shape permuted;
    for (const std::int64_t p : permutation) permuted.push_back(shape[p]);
    const Strides strides = kernels::contiguous_strides(shape);
    std::size_t i = 0;
    for_each_index(permuted, [&](const std::vector<std::int64_t>& at) {
      std::int64_t source = 0;
      for (std::size_t d = 0; d < at.size(); ++d) source += at[d] * strides[static_cast<std::size_t>(permutation[d])];
      ASSERT_EQ(out[i++], x[static_cast<std::size_t>(source)]) << to_string(shape);
    });
  } while (std::next_permutation(permutation.begin(), permutation.end()));
}

TEST(Transpose, EveryPermutationAndElementSize) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{1, 1}, Shape{33, 65}, Shape{300, 200}, Shape{3, 1, 40},
                             Shape{2, 33, 3, 35}, Shape{2, 3, 2, 1, 4}, Shape{0, 4}}) {
    check_transposes<std::uint8_t>(shape);
    check_transposes<std::uint16_t>(shape);
    check_transposes<std::uint32_t>(shape);
    check_transposes<std::uint64_t>(shape);
  }
}

TEST(CopyStrided, StepsBackwardsGapsAndBroadcasts) {
  struct Case {
    Shape shape;
    std::int64_t start;
    Strides from;
    Strides to;
  };
  const Case cases[] = {
      {{5}, 9, {-2}, {1}},                     // x[9:0:-2]
      {{3, 4}, 2, {20, 3}, {4, 1}},            // a slice with a step
      {{4, 3}, 0, {0, 1}, {3, 1}},             // rows repeated
      {{3, 4}, 0, {1, 0}, {4, 1}},             // columns repeated
      {{2, 3, 4}, 0, {12, 4, 1}, {40, 8, 2}},  // into every other place
      {{6, 7}, 5, {-1, 6}, {7, 1}},            // turned round and transposed
      {{3, 5}, 0, {5, 1}, {9, 1}},             // a part of a concatenation
      {{70, 90}, 69, {-1, 70}, {90, 1}},
  };
  for (const Case& c : cases) {
    std::vector<float> x(8000), to(8000, -1), want(8000, -1);
    std::iota(x.begin(), x.end(), 0.0f);
    for_each_index(c.shape, [&](const std::vector<std::int64_t>& at) {
      want[static_cast<std::size_t>(offset(at, c.to))] = x[static_cast<std::size_t>(c.start + offset(at, c.from))];
    });
    kernels::copy_strided(c.shape, sizeof(float), x.data() + c.start, c.from, to.data(), c.to);
    EXPECT_EQ(to, want) << to_string(c.shape);
  }
}

TEST(CopyStrided, ThreadsCopyTheSame) {
  const Shape shape{700, 900};
  std::vector<float> x(static_cast<std::size_t>(shape.elements())), one(x.size()), two(x.size(), -1), back(x.size());
  std::iota(x.begin(), x.end(), 0.0f);
  const std::int64_t swap[] = {1, 0};
  {
    const ThreadLimit limit(1);
    kernels::transpose(shape, swap, 4, x.data(), one.data());
  }
  {
    const ThreadLimit limit(3);
    kernels::transpose(shape, swap, 4, x.data(), two.data());
  }
  EXPECT_EQ(one, two);
  kernels::transpose({900, 700}, swap, 4, one.data(), back.data());
  EXPECT_EQ(back, x);
  kernels::copy_strided({630000}, 4, x.data(), {1}, two.data(), {1});
  EXPECT_EQ(two, x);
}

}  // namespace
}  // namespace everyo
