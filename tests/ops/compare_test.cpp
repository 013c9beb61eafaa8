#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "everyo/ops.h"

namespace everyo {
namespace {

using testing::ElementsAre;

TEST(Compare, Values) {
  const Tensor a = Tensor::from<float>({1, 2, 3}), b = Tensor::from<float>({2});
  EXPECT_THAT(equal(a, b).to_vector(), ElementsAre(0, 1, 0));
  EXPECT_THAT(not_equal(a, b).to_vector(), ElementsAre(1, 0, 1));
  EXPECT_THAT(less(a, b).to_vector(), ElementsAre(1, 0, 0));
  EXPECT_THAT(less_equal(a, b).to_vector(), ElementsAre(1, 1, 0));
  EXPECT_THAT(greater(a, b).to_vector(), ElementsAre(0, 0, 1));
  EXPECT_THAT(greater_equal(a, b).to_vector(), ElementsAre(0, 1, 1));
  EXPECT_EQ(less(a, b).dtype(), boolean);
}

TEST(Compare, PromotesAndTakesParameters) {
  const Tensor a = Tensor::from<std::int64_t>({1, 2}), b = Tensor::from<double>({1.5, 2});
  b.set_requires_grad();
  const Tensor y = less(a, b);
  EXPECT_THAT(y.to_vector(), ElementsAre(1, 0));
  EXPECT_FALSE(y.requires_grad());
}

TEST(Compare, WholeNumbersMeetFloatsInFloat64) {
  const Tensor whole = Tensor::from<std::int32_t>({16777217}), rounded = Tensor::from<float>({16777216});
  EXPECT_EQ(equal(whole, rounded).to_vector(), std::vector<double>{0});
  EXPECT_EQ(greater(cast(whole, int64), rounded).to_vector(), std::vector<double>{1});
  EXPECT_EQ(less(Tensor::scalar(2048, float16), Tensor::scalar(2049, int64)).item(), 1);
}

TEST(Compare, NaNIsUnequalToAll) {
  const Tensor nan = Tensor::scalar(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(equal(nan, nan).item(), 0);
  EXPECT_EQ(not_equal(nan, nan).item(), 1);
  EXPECT_EQ(greater_equal(nan, Tensor::scalar(0)).item(), 0);
}

}  // namespace
}  // namespace everyo
