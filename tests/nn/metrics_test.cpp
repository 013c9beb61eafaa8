#include "everyo/nn/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

TEST(ConfusionMatrix, CountsTargetsByRowAndPredictionsByColumn) {
  const Tensor targets = Tensor::from<std::int64_t>({0, 2, 2, 1, 2});
  const Tensor matrix = confusion_matrix(Tensor::from<std::int64_t>({0, 2, 1, 1, 1}), targets, 3);
  EXPECT_EQ(matrix.dtype(), int64);
  EXPECT_EQ(matrix.shape(), (Shape{3, 3}));
  EXPECT_EQ(matrix.to_vector(), (std::vector<double>{1, 0, 0, 0, 1, 0, 0, 2, 1}));
  const Tensor scores = Tensor::from<float>({1, 5, 2, 9, 0, 0}, {2, 3});  // classes 1 and 0
  EXPECT_EQ(confusion_matrix(scores, Tensor::from<std::int32_t>({1, 2}, {2, 1}), 3).to_vector(),
            (std::vector<double>{0, 0, 0, 0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(confusion_matrix(Tensor::zeros({0}, int64), Tensor::zeros({0}, int64), 1).to_vector(),
            (std::vector<double>{0}));
}

TEST(ConfusionMatrix, WrongClassesAreNamed) {
  const Tensor good = Tensor::from<std::int64_t>({0, 1}), high = Tensor::from<std::int64_t>({0, 3});
  EXPECT_EQ(
      testing_nn::error_of([&] { (void)confusion_matrix(good, high, 3); }),
      "[confusion_matrix] class 3 in row 1 of the target is out of range; 3 classes are the whole numbers 0 to 2");
  EXPECT_THAT(testing_nn::error_of([&] { (void)confusion_matrix(high, good, 3); }),
              HasSubstr("class 3 in row 1 of the prediction"));
  EXPECT_THAT(testing_nn::error_of([&] {
                (void)confusion_matrix(good, Tensor::from<std::int64_t>({-1, 0}), 3);
              }),
              HasSubstr("class -1 in row 0 of the target"));
  EXPECT_THAT(testing_nn::error_of([&] {
                (void)confusion_matrix(good, Tensor::from<float>({0, 0.5f}), 3);
              }),
              HasSubstr("class 0.5 in row 1"));
  EXPECT_THROW((void)confusion_matrix(good, Tensor::full({2}, std::nan("")), 3), ValueError);
  EXPECT_THROW((void)confusion_matrix(good, good, 0), ValueError);
  try {
    (void)confusion_matrix(good, high, 3);
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);  // as other labels that do not fit
  }
  EXPECT_THAT(testing_nn::error_of([&] { (void)confusion_matrix(good, Tensor::zeros({3}, int64), 3); }),
              HasSubstr("[confusion_matrix] prediction (2,) and target (3,) have 2 and 3 rows"));
}

}  // namespace
}  // namespace everyo
