#include "everyo/nn/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;

TEST(Accuracy, ScoresAgainstClassesOfAnyForm) {
  const Tensor scores = Tensor::from<float>({1, 5, 2, 9, 0, 0, 3, 3, 1, 0, 0, 2}, {4, 3});  // 1, 0, 0 (first), 2
  EXPECT_EQ(accuracy(scores, Tensor::from<std::int64_t>({1, 0, 1, 0})), 0.5);
  EXPECT_EQ(accuracy(scores, Tensor::from<std::int32_t>({1, 0, 0, 2}, {4, 1})), 1);
  EXPECT_EQ(accuracy(scores, Tensor::from<float>({0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0}, {4, 3})), 0.75);
  EXPECT_EQ(accuracy(Tensor::from<std::int64_t>({1, 2}), Tensor::from<float>({1, 3})), 0.5);
  EXPECT_EQ(accuracy(Tensor::zeros({0, 3}), Tensor::zeros({0}, int64)), 0);
}

TEST(Accuracy, WrongShapesAreNamed) {
  EXPECT_THAT(testing_nn::error_of([] {
                (void)accuracy(Tensor::zeros({2, 3, 4}), Tensor::zeros({2}));
              }),
              HasSubstr("prediction has shape (2, 3, 4)"));
  EXPECT_THAT(testing_nn::error_of([] {
                (void)accuracy(Tensor::zeros({2, 3}), Tensor::zeros({3}));
              }),
              HasSubstr("2 and 3 rows"));
}

}  // namespace
}  // namespace everyo
