#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/ops.h"
#include "everyo/precision.h"
#include "everyo/random.h"

// linear gives the gradient of a half weight in float32, for the cast behind it. Whatever is done with that gradient,
// its bits are those of the product that is given as a half.
namespace everyo {
namespace {

constexpr std::int64_t rows = 40, inputs = 70, outputs = 50;  // past the small kernels

Tensor drawn(const Shape& shape, std::uint64_t seed, DType dtype = float32) {
  const Tensor t = Tensor::empty({float32, shape});
  Generator(seed).uniform(-1, 1, t.data<float>());
  return cast(t, dtype);
}
std::vector<std::byte> bytes_of(const Tensor& t) { return {t.bytes(), t.bytes() + t.spec().bytes()}; }

class WidenedGradient : public testing::TestWithParam<DType> {
 protected:
  DType half_ = GetParam();
  Tensor x_ = drawn({rows, inputs}, 1, half_), seed_ = drawn({rows, outputs}, 2, half_);
  Tensor weight_ = drawn({inputs, outputs}, 3);

  void SetUp() override { weight_.set_requires_grad(); }
  // The gradient of linear, or with `plain` of matmul, for `uses` uses of one cast weight.
  std::vector<std::byte> gradient(bool plain, int uses) {
    weight_.zero_grad();
    const Tensor low = cast(weight_, half_);
    Tensor sum;
    for (int i = 0; i < uses; ++i) {
      const Tensor y = plain ? matmul(x_, low) : linear(x_, low);
      sum = sum.defined() ? sum + y : y;
    }
    sum.backward({.seed = &seed_});
    EXPECT_EQ(weight_.grad().dtype(), float32);
    return bytes_of(weight_.grad());
  }
};

TEST_P(WidenedGradient, HasTheBitsOfAHalf) { EXPECT_EQ(gradient(false, 1), gradient(true, 1)); }

// Two halves are added in float32 and rounded, as halves are.
TEST_P(WidenedGradient, IsAddedAsAHalf) {
  EXPECT_EQ(gradient(false, 2), gradient(true, 2));
  EXPECT_EQ(gradient(false, 3), gradient(true, 3));
}

TEST_P(WidenedGradient, AddsToTheSlotAsAHalf) {
  const auto twice = [&](bool plain) {
    weight_.zero_grad();
    for (int i = 0; i < 2; ++i) {
      const Tensor low = cast(weight_, half_);
      (plain ? matmul(x_, low) : linear(x_, low)).backward({.seed = &seed_});
    }
    return bytes_of(weight_.grad());
  };
  EXPECT_EQ(twice(false), twice(true));
}

TEST_P(WidenedGradient, IsAHalfForHooks) {
  const Tensor low = cast(weight_, half_);
  DType seen = float32;
  on_gradient(low, [&](std::span<const Tensor> gradients) { seen = gradients[0].dtype(); });
  linear(x_, low).backward({.seed = &seed_});
  EXPECT_EQ(seen, half_);
}

TEST_P(WidenedGradient, IsAHalfForOtherOps) {
  const Tensor weight = drawn({inputs, outputs}, 3, half_);
  weight.set_requires_grad();
  linear(x_, -weight).backward({.seed = &seed_});
  const auto fused = bytes_of(weight.grad());
  EXPECT_EQ(weight.grad().dtype(), half_);
  weight.zero_grad();
  matmul(x_, -weight).backward({.seed = &seed_});
  EXPECT_EQ(fused, bytes_of(weight.grad()));
}

// Both operands at once: the slot takes no product straight.
TEST_P(WidenedGradient, IsAHalfForAHalfLeaf) {
  const Tensor square = drawn({outputs, outputs}, 4, half_), seed = drawn({outputs, outputs}, 5, half_);
  square.set_requires_grad();
  linear(square, square).backward({.seed = &seed});
  const auto fused = bytes_of(square.grad());
  square.zero_grad();
  matmul(square, square).backward({.seed = &seed});
  EXPECT_EQ(fused, bytes_of(square.grad()));
}

INSTANTIATE_TEST_SUITE_P(Halves, WidenedGradient, testing::Values(float16, bfloat16),
                         [](const auto& each) { return std::string(name_of(each.param)); });

}  // namespace
}  // namespace everyo
