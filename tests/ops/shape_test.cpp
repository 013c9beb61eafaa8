#include <gmock/gmock.h>

#include <numeric>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor counting(const Shape& shape) {
  const Tensor x = Tensor::empty(shape);
  std::iota(x.data<float>().begin(), x.data<float>().end(), 0.0f);
  return x;
}

TEST(ShapeOps, ReshapeIsAView) {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = reshape(x, {6, -1});
  EXPECT_EQ(y.shape(), (Shape{6, 4}));
  EXPECT_EQ(y.bytes(), x.bytes());
  EXPECT_EQ(flatten(x).shape(), Shape{24});
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(Tensor::scalar(1)).shape(), Shape{1});
  EXPECT_EQ(expand_dims(x, -1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(expand_dims(x, 0).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(squeeze(expand_dims(x, 1), 1).shape(), x.shape());
  EXPECT_EQ(reshape(Tensor::scalar(2), {}).item(), 2);
}

TEST(ShapeOps, TransposeAndBroadcast) {
  const Tensor x = counting({2, 3});
  EXPECT_THAT(transpose(x).to_vector(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(transpose(counting({2, 3, 4}), {1, -1, 0}).shape(), (Shape{3, 4, 2}));
  EXPECT_THAT(broadcast_to(Tensor::from<float>({1, 2}, {2, 1}), {2, 2}).to_vector(), ElementsAre(1, 1, 2, 2));
  EXPECT_EQ(broadcast_to(Tensor::scalar(3), {2, 2, 2}).to_vector(), std::vector<double>(8, 3));
  EXPECT_EQ(transpose(Tensor::ones({2, 3}, boolean)).dtype(), boolean);
}

TEST(ShapeOps, Gradients) {
  const Tensor x = uniform_leaf({2, 1, 3}, 1);
  check_gradients([&] { return reshape(x, {3, 2}); }, {x});
  check_gradients([&] { return transpose(x, {2, 0, 1}); }, {x});
  check_gradients([&] { return broadcast_to(x, {4, 2, 5, 3}); }, {x});
  check_gradients([&] { return multiply(squeeze(x, 1), flatten(x, 1)); }, {x});
}

TEST(ShapeOps, Refusals) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THAT(message_of<ShapeError>([&] { reshape(x, {4, 2}); }), HasSubstr("Cannot reshape (2, 3)"));
  EXPECT_THAT(message_of<ShapeError>([&] { reshape(x, {-1, 4}); }), HasSubstr("Cannot reshape"));
  EXPECT_THAT(message_of<ShapeError>([&] { reshape(x, {-1, -1}); }), HasSubstr("Cannot reshape"));
  EXPECT_THAT(message_of<ShapeError>([&] { reshape(x, {-2, 3}); }), HasSubstr("Cannot reshape"));
  constexpr std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THAT(message_of<ShapeError>([&] { reshape(x, {large, large}); }), HasSubstr("Cannot reshape"));
  EXPECT_THAT(message_of<ShapeError>([&] { transpose(x, {0, 0}); }), HasSubstr("permutation"));
  EXPECT_THAT(message_of<ShapeError>([&] { transpose(x, {0}); }), HasSubstr("permutation"));
  EXPECT_THAT(message_of<ShapeError>([&] { squeeze(x, 0); }), HasSubstr("size 2"));
  EXPECT_THAT(message_of<ShapeError>([&] { broadcast_to(x, {3, 3}); }), HasSubstr("broadcast"));
  EXPECT_THAT(message_of<ShapeError>([&] { flatten(x, 2); }), HasSubstr("out of range"));
}

TEST(ShapeOps, ReshapeRefusesSizesWhoseProductOverflows) {
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW(reshape(Tensor::ones({4}), {big, big, -1}), ShapeError);
  EXPECT_THROW(reshape(Tensor::ones({0}), {-1, 0}), ShapeError);
}

TEST(ShapeOps, AValueWrittenAfterItWasMadeIsWhatBackwardSees) {
  const Tensor w = Tensor::from<float>({1, 2, 3, 4}, {2, 2}), x = Tensor::ones({1, 2});
  w.set_requires_grad();
  x.set_requires_grad();
  const Tensor made = transpose(w);  // cheap: made again from w in backward, unless somebody wrote it
  made.assign(Tensor::full({2, 2}, 10));
  sum(matmul(x, made)).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{20, 20}));
}

}  // namespace
}  // namespace everyo
