#include "everyo/nn/losses.h"

#include <gtest/gtest.h>

#include "nn/dense.h"

namespace everyo {
namespace {

using testing_nn::ramp;

// Each module is its function with the reduction it was made with.
TEST(LossModules, TakeTheirReduction) {
  const Tensor prediction = scale(ramp({4, 3}), 0.05, 0.1), target = scale(ramp({4, 3}), 0, 0.5);
  for (const Reduction how : {Reduction::mean, Reduction::sum, Reduction::none}) {
    EXPECT_EQ(MSELoss(how)(prediction, target).to_vector(), mse_loss(prediction, target, how).to_vector());
    EXPECT_EQ(MAELoss(how)(prediction, target).to_vector(), mae_loss(prediction, target, how).to_vector());
    EXPECT_EQ(BCELoss(how)(prediction, target).to_vector(), bce_loss(prediction, target, how).to_vector());
    EXPECT_EQ(BCEWithLogitsLoss(how)(prediction, target).to_vector(),
              bce_with_logits_loss(prediction, target, how).to_vector());
  }
  EXPECT_EQ(MSELoss()(prediction, target).to_vector(), mse_loss(prediction, target).to_vector());
  EXPECT_EQ(MAELoss()(prediction, target).shape(), Shape{});
}

TEST(LossModules, CrossEntropyTakesItsOptions) {
  const Tensor logits = ramp({4, 3}), labels = Tensor::from<std::int64_t>({0, 2, 1, 2}, {4});
  const CrossEntropyOptions options{.reduction = Reduction::sum, .ignore_index = 2};
  EXPECT_EQ(CrossEntropyLoss()(logits, labels).to_vector(), cross_entropy(logits, labels).to_vector());
  EXPECT_EQ(CrossEntropyLoss(options)(logits, labels).to_vector(), cross_entropy(logits, labels, options).to_vector());
  EXPECT_NE(CrossEntropyLoss(options)(logits, labels).to_vector(), CrossEntropyLoss()(logits, labels).to_vector());
}

}  // namespace
}  // namespace everyo
