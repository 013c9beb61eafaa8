#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"
#include "ops/gradient_check.h"

namespace everyo {
namespace {

using everyo_test::check_gradients;
using everyo_test::draw;
using testing::ElementsAre;

TEST(Where, TakesEitherSide) {
  const Tensor c = Tensor::from<bool>({true, false}, {2, 1});
  const Tensor y = where(c, Tensor::from<float>({1, 2}), Tensor::scalar(-1));
  EXPECT_THAT(y.to_vector(), ElementsAre(1, 2, -1, -1));
  EXPECT_EQ(where(c, Tensor::ones({2, 1}, float16), Tensor::ones({2, 1})).dtype(), float32);
}

TEST(Where, Gradients) {
  const Tensor c = less(draw({3, 4}, 1), Tensor::scalar(0, float64));
  check_gradients([&](const std::vector<Tensor>& x) { return where(c, x[0], x[1]); }, {draw({4}, 2), draw({3, 1}, 3)});
  check_gradients([&](const std::vector<Tensor>& x) { return where(c, x[0], x[1]); },
                  {draw({2, 3, 4}, 4), draw({}, 5)});
}

TEST(Where, Errors) {
  const Tensor x = Tensor::ones({2});
  EXPECT_THROW(where(x, x, x), DTypeError);
  EXPECT_THROW(where(less(x, x), x, Tensor::ones({3})), ShapeError);
}

}  // namespace
}  // namespace everyo
