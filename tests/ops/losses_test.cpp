#include <gmock/gmock.h>

#include <cmath>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LossOps, GradientsOfEveryReduction) {
  const Tensor x = uniform_leaf({3, 4}, 1, -2, 2), t = uniform_leaf({3, 4}, 2, 0.1, 0.9);
  const Tensor p = uniform_leaf({3, 4}, 3, 0.1, 0.9);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    check_gradients([&] { return mse_loss(x, t, reduction); }, {x, t});
    check_gradients([&] { return mae_loss(x, t, reduction); }, {x, t});
    check_gradients([&] { return bce_with_logits_loss(x, t, reduction); }, {x, t});
    check_gradients([&] { return bce_loss(p, t, reduction); }, {p, t});
  }
}

TEST(LossOps, Values) {
  const Tensor x = Tensor::from<float>({1, 2, 4}), t = Tensor::from<float>({1, 4, 1});
  EXPECT_THAT(mse_loss(x, t, Reduction::none).to_vector(), ElementsAre(0, 4, 9));
  EXPECT_NEAR(mse_loss(x, t).item(), 13.0 / 3, 1e-6);  // float32
  EXPECT_EQ(mae_loss(x, t, Reduction::sum).item(), 5);
  EXPECT_NEAR(bce_with_logits_loss(Tensor::zeros({2}), Tensor::ones({2})).item(), std::log(2.0), 1e-7);
  EXPECT_NEAR(bce_loss(sigmoid(x), Tensor::ones({3})).item(), bce_with_logits_loss(x, Tensor::ones({3})).item(), 1e-6);
  EXPECT_EQ(mse_loss(x, Tensor::from<std::int64_t>({1, 2, 4})).item(), 0);  // integer targets promote
}

// numerics N09: a float16 mean loss over 70,000 elements.
TEST(LossOps, N09_Float16MeanOfManyElements) {
  EXPECT_EQ(mse_loss(Tensor::full({70000}, 3, float16), Tensor::full({70000}, 1, float16)).item(), 4);
}

TEST(LossOps, Float32UnderAutocast) {
  const Tensor x = Tensor::ones({2}, float16);
  EXPECT_EQ(mse_loss(x, x).dtype(), float16);
  EXPECT_EQ(mse_loss(x, Tensor::ones({2})).dtype(), float32);
  const Scoped<&Context::autocast> on(true);
  EXPECT_EQ(mse_loss(x, x).dtype(), float32);
}

TEST(LossOps, Refusals) {
  EXPECT_THAT(message_of<ShapeError>([] {
                mse_loss(Tensor::ones({2}), Tensor::ones({2, 1}));
              }),
              HasSubstr("same shape"));
  EXPECT_THAT(message_of<ShapeError>([] {
                bce_loss(Tensor::from<float>({0.5f, 1.5f}), Tensor::ones({2}));
              }),
              testing::AllOf(HasSubstr("probabilities"), HasSubstr("element 1 is 1.5")));
  EXPECT_THAT(message_of<ValueError>([] { reduction_of("median"); }), HasSubstr("Unknown reduction"));
  EXPECT_EQ(reduction_of("none"), Reduction::none);
}

}  // namespace
}  // namespace everyo
