#include <gmock/gmock.h>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

TEST(SoftmaxOps, GradientsAlongEveryAxis) {
  for (const std::int64_t axis : {0, 1, 2, -1}) {
    const Tensor x = uniform_leaf({3, 4, 5}, 1, -3, 3);
    check_gradients([&] { return softmax(x, axis); }, {x});
    check_gradients([&] { return log_softmax(x, axis); }, {x});
  }
}

TEST(SoftmaxOps, RowsSumToOneAndTheLogarithmIsIts) {
  const Tensor x = uniform_leaf({4, 7}, 2, -3, 3).detach();
  for (const double total : sum(softmax(x), {1}).to_vector()) EXPECT_NEAR(total, 1, 1e-15);
  const auto y = softmax(x, 0).to_vector(), log_y = exp(log_softmax(x, 0)).to_vector();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], log_y[i], 1e-15);  // float64, an ulp or two
}

// numerics N11.
TEST(SoftmaxOps, N11_Float16OverAFewThousandSumsToOne) {
  EXPECT_EQ(sum(cast(softmax(Tensor::full({4096}, 2, float16)), float64)).item(), 1);
}

TEST(SoftmaxOps, Float32UnderAutocast) {
  const Tensor x = Tensor::ones({2, 3}, bfloat16);
  EXPECT_EQ(softmax(x).dtype(), bfloat16);
  const Scoped<&Context::autocast> on(true);
  EXPECT_EQ(softmax(x).dtype(), float32);
  EXPECT_EQ(log_softmax(x, 0).dtype(), float32);
}

TEST(SoftmaxOps, Refusals) {
  EXPECT_THAT(message_of<ShapeError>([] { softmax(Tensor::ones({2}), 1); }), testing::HasSubstr("out of range"));
  EXPECT_EQ(softmax(Tensor::ones({2}, int64)).dtype(), float32);  // as exp of integers
}

}  // namespace
}  // namespace everyo
