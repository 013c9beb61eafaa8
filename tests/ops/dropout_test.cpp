#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"
#include "everyo/ops.h"

namespace everyo {
namespace {

using testing::HasSubstr;

TEST(DropoutOp, GradientHasTheForwardsMask) {
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    const Tensor x = Tensor::ones({50, 21}, dtype);
    x.set_requires_grad();
    const Tensor y = dropout(x, 0.5), seed = Tensor::ones({50, 21}, dtype);
    {
      const Scoped<&Context::step> later(7);  // the mask belongs to the forward
      y.backward({.seed = &seed});
    }
    EXPECT_EQ(x.grad().to_vector(), y.to_vector());
    EXPECT_THAT(y.to_vector(), testing::Each(testing::AnyOf(0, 2)));
  }
}

TEST(DropoutOp, IsKeyedByTheContext) {
  const Tensor x = Tensor::ones({1000});
  const auto once = dropout(x, 0.5).to_vector();
  EXPECT_EQ(dropout(x, 0.5).to_vector(), once);
  EXPECT_NE(dropout(x, 0.5, 1).to_vector(), once);
  {
    const Scoped<&Context::seed> other(1);
    EXPECT_NE(dropout(x, 0.5).to_vector(), once);
  }
  {
    const Scoped<&Context::step> other(1);
    EXPECT_NE(dropout(x, 0.5).to_vector(), once);
  }
  {
    const Scoped<&Context::micro_batch> other(1);
    EXPECT_NE(dropout(x, 0.5).to_vector(), once);
  }
}

TEST(DropoutOp, Range) {
  const Tensor x = Tensor::ones({4});
  EXPECT_EQ(dropout(x, 0).body(), x.body());
  for (const double p : {-0.1, 1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    try {
      dropout(x, p);
      FAIL() << p;
    } catch (const ValueError& e) {
      EXPECT_THAT(e.what(), HasSubstr("[0, 1)"));
    }
  }
}

TEST(DropoutOp, TakesFloatsOnly) { EXPECT_THROW(dropout(Tensor::ones({4}, int64), 0.5), DTypeError); }

}  // namespace
}  // namespace everyo
