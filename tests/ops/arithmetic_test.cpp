#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;
using testing::HasSubstr;
using Two = std::vector<Tensor>;

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Arithmetic, Values) {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4}, {2, 2}), b = Tensor::from<float>({10, 20});
  EXPECT_THAT((a + b).to_vector(), ElementsAre(11, 22, 13, 24));
  EXPECT_THAT((a - b).to_vector(), ElementsAre(-9, -18, -7, -16));
  EXPECT_THAT((a * b).to_vector(), ElementsAre(10, 40, 30, 80));
  EXPECT_THAT((b / a).to_vector(), ElementsAre(10, 10, Tensor::scalar(10.0f / 3).item(), 5));
  EXPECT_THAT(maximum(a, b - 18).to_vector(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(minimum(a, b - 18).to_vector(), ElementsAre(-8, 2, -8, 2));
  EXPECT_THAT((-a).to_vector(), ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT((2.0 - a).to_vector(), ElementsAre(1, 0, -1, -2));
  EXPECT_THAT((12.0 / a).to_vector(), ElementsAre(12, 6, 4, 3));
  EXPECT_THAT((a / 2.0).to_vector(), ElementsAre(0.5, 1, 1.5, 2));
}

TEST(Arithmetic, DTypes) {
  const auto of = [](DType dtype) { return Tensor::ones({2}, dtype); };
  EXPECT_EQ((of(float16) + of(float32)).dtype(), float32);
  EXPECT_EQ((of(float16) + of(bfloat16)).dtype(), float32);
  EXPECT_EQ((of(float16) * 2.5).dtype(), float16);
  EXPECT_EQ((of(bfloat16) + 1e-3).dtype(), bfloat16);
  EXPECT_EQ((of(int32) + of(int64)).dtype(), int64);
  EXPECT_EQ((of(int64) / of(int64)).dtype(), float32);
  EXPECT_EQ((of(int64) / 2.0).dtype(), float32);
  EXPECT_EQ((of(int64) * 2.0).dtype(), int64);
  EXPECT_EQ((of(int64) * 0.5).dtype(), float32);
  EXPECT_EQ((of(int64) + of(float16)).dtype(), float16);
  EXPECT_EQ((of(boolean) + of(boolean)).dtype(), boolean);
  EXPECT_EQ((of(boolean) * 3.0).dtype(), int64);
  EXPECT_THAT((Tensor::from<std::int64_t>({7, -7}) / Tensor::from<std::int64_t>({2, 2})).to_vector(),
              ElementsAre(3.5, -3.5));
  EXPECT_THROW(of(boolean) - of(boolean), DTypeError);
  EXPECT_THROW(-of(boolean), DTypeError);
}

TEST(Arithmetic, BroadcastClash) {
  const Tensor a = Tensor::ones({2, 3}), b = Tensor::ones({4});
  for (const auto& op : {add, subtract, multiply, divide}) {
    const std::string text = message([&] { op(a, b); });
    EXPECT_THAT(text, HasSubstr("broadcast"));
    EXPECT_THAT(text, HasSubstr("(2, 3)"));
    EXPECT_THAT(text, HasSubstr("(4,)"));
  }
  EXPECT_THROW(a + b, ShapeError);
}

TEST(Arithmetic, Gradients) {
  const struct {
    Shape a, b;
  } rows[] = {{{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{3, 4}, {3, 1}},
              {{3, 1}, {1, 4}}, {{}, {3, 4}},  {{2, 1, 3, 1}, {4, 1, 2}}};
  for (const auto& [a, b] : rows) {
    const Two inputs{draw(a, 1), draw(b, 2, 0.5, 2)};
    const auto copies = [&] { return Two{inputs[0].copy(), inputs[1].copy()}; };
    check_gradients([](const Two& x) { return x[0] + x[1]; }, copies());
    check_gradients([](const Two& x) { return x[0] - x[1]; }, copies());
    check_gradients([](const Two& x) { return x[0] * x[1]; }, copies());
    check_gradients([](const Two& x) { return x[0] / x[1]; }, copies());
    check_gradients([](const Two& x) { return maximum(x[0], x[1] + 1e-3); }, copies());
    check_gradients([](const Two& x) { return minimum(x[0], x[1] + 1e-3); }, copies());
  }
  check_gradients([](const Two& x) { return -(x[0] * 3.0 + 1.0) - 2.0 / x[0]; }, {draw({5}, 3, 0.5, 2)});
  check_gradients([](const Two& x) { return x[0] * x[0]; }, {draw({5}, 4)});  // both operands one tensor
}

TEST(Arithmetic, TiesSplitTheGradient) {
  const Tensor a = Tensor::from<float>({1, 2}), b = Tensor::from<float>({1, 5});
  a.set_requires_grad();
  b.set_requires_grad();
  const Tensor ones = Tensor::ones({2});
  maximum(a, b).backward({.seed = &ones});
  EXPECT_THAT(a.grad().to_vector(), ElementsAre(0.5, 0));
  EXPECT_THAT(b.grad().to_vector(), ElementsAre(0.5, 1));
}

TEST(Arithmetic, GradientOfABiasIsSummedWide) {
  // 4096 + 1 is not a float16; a sum in float16 would stop at 2048.
  const Tensor x = Tensor::ones({4097, 1}, float16), bias = Tensor::zeros({1}, float16);
  bias.set_requires_grad();
  const Tensor ones = Tensor::ones({4097, 1}, float16);
  (x + bias).backward({.seed = &ones});
  EXPECT_EQ(bias.grad().dtype(), float16);
  EXPECT_EQ(bias.grad().item(), 4096);  // 4097 rounded once, to even
}

TEST(Arithmetic, PromotedOperandsGetGradientsOfTheirOwnDType) {
  const Tensor half = Tensor::ones({3}, float16), wide = Tensor::ones({3});
  half.set_requires_grad();
  wide.set_requires_grad();
  const Tensor ones = Tensor::ones({3});
  (half * wide).backward({.seed = &ones});
  EXPECT_EQ(half.grad().dtype(), float16);
  EXPECT_EQ(wide.grad().dtype(), float32);
}

TEST(Arithmetic, GradientsAddUpInALeaf) {
  const Tensor x = Tensor::ones({2, 3}), bias = Tensor::zeros({3});
  bias.set_requires_grad();
  const Tensor ones = Tensor::ones({2, 3});
  for (int i = 0; i < 2; ++i) (x + bias).backward({.seed = &ones});
  EXPECT_THAT(bias.grad().to_vector(), ElementsAre(4, 4, 4));
}

TEST(Arithmetic, EmptyTensors) {
  const Tensor empty = Tensor::empty({0, 3}), row = Tensor::ones({3});
  row.set_requires_grad();
  const Tensor y = empty + row, seed = Tensor::empty({0, 3});
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  y.backward({.seed = &seed});
  EXPECT_THAT(row.grad().to_vector(), ElementsAre(0, 0, 0));
}

TEST(Arithmetic, Meta) {
  const MetaScope scope;
  const Tensor y = Tensor::empty({2, 3}) + Tensor::empty({3}, float64);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(y.dtype(), float64);
}

TEST(Arithmetic, ANumberDividesAsATensorDoes) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 49, 5e-11f, -7}, {6});
  for (const double y : {3.0, 49.0, 7.0, 1e-10}) {
    EXPECT_EQ((x / y).to_vector(), divide(x, Tensor::scalar(y)).to_vector()) << y;
  }
  EXPECT_EQ((Tensor::full({1}, 49, float64) / 49).item(), 1);
  EXPECT_EQ((Tensor::full({1}, 7, int64) / 2).item(), 3.5);
}

TEST(Arithmetic, RefusesAResultThatIsTooLarge) {
  const std::int64_t n = 1 << 21;
  EXPECT_THROW(
      where(Tensor::zeros({n, 1, 1}, boolean), Tensor::zeros({1, n, 1}, uint8), Tensor::zeros({1, 1, n}, uint8)),
      ShapeError);
}

}  // namespace
}  // namespace everyo
