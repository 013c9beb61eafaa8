#include "everyo/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/slots.h"

namespace everyo_test {
namespace {

using eo::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Clip, ByTheGlobalNorm) {
  const Tensor a = slot({0, 0}), b = slot({0});
  set_grad(a, {3, 0});
  set_grad(b, {4});
  const std::vector both{a, b};
  EXPECT_EQ(eo::clip_grad_norm(both, 10), 5);
  EXPECT_EQ(a.grad().to_vector()[0], 3);
  EXPECT_EQ(eo::clip_grad_norm(both, 1), 5);
  EXPECT_FLOAT_EQ(static_cast<float>(b.grad().item()), 0.8f);
  set_grad(b, {std::numeric_limits<double>::infinity()});
  b.body()->leaf->name = "b";
  EXPECT_THAT([&] { eo::clip_grad_norm(both, 1, {.error_if_nonfinite = true}); },
              ThrowsMessage<eo::StateError>(HasSubstr("that of 'b'")));
  EXPECT_EQ(eo::first_nonfinite(both), "b");
  EXPECT_EQ(eo::first_nonfinite(both, true), "");
  EXPECT_THROW(eo::clip_grad_norm(both, 0), eo::ValueError);
}

TEST(Clip, ByValueKeepsNaN) {
  const Tensor a = slot({0, 0, 0});
  set_grad(a, {3, -0.5, std::nan("")});
  eo::clip_grad_value(std::vector{a}, 1);
  EXPECT_EQ(a.grad().to_vector()[0], 1);
  EXPECT_EQ(a.grad().to_vector()[1], -0.5);
  EXPECT_TRUE(std::isnan(a.grad().to_vector()[2]));
}

}  // namespace
}  // namespace everyo_test
