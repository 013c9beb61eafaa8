#include <gmock/gmock.h>

#include <array>
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
Tensor indices(std::initializer_list<std::int64_t> values) { return Tensor::from<std::int64_t>(values); }

TEST(IndexOps, SliceFollowsPython) {
  const Tensor x = counting({10});
  EXPECT_THAT(slice(x, {{2, 5}}).to_vector(), ElementsAre(2, 3, 4));
  EXPECT_THAT(slice(x, {{-3}}).to_vector(), ElementsAre(7, 8, 9));
  EXPECT_THAT(slice(x, {{1, -1, 3}}).to_vector(), ElementsAre(1, 4, 7));
  EXPECT_THAT(slice(x, {{8, 2, -2}}).to_vector(), ElementsAre(8, 6, 4));
  EXPECT_THAT(slice(x, {{.start = -1, .step = -4}}).to_vector(), ElementsAre(9, 5, 1));
  EXPECT_THAT(slice(x, {{100, 200}}).to_vector(), ElementsAre());
  EXPECT_THAT(slice(x, {{-100, 2}}).to_vector(), ElementsAre(0, 1));
  EXPECT_THAT(slice(x, {{5, 2}}).to_vector(), ElementsAre());
  EXPECT_THAT(slice(counting({3, 4}), {{0, 3, 2}, {1, 3}}).to_vector(), ElementsAre(1, 2, 9, 10));
}

TEST(IndexOps, LeadingSlicesAreViews) {
  const Tensor x = counting({4, 3});
  EXPECT_EQ(slice(x, {{1, 3}}).bytes(), x.bytes() + 12);
  EXPECT_EQ(select(x, -1).bytes(), x.bytes() + 36);
  EXPECT_EQ(slice(x, {{2, 3}, {1, 3}}).bytes(), x.bytes() + 28);  // one row's part lies together
  EXPECT_NE(slice(x, {{0, 4, 2}}).bytes(), x.bytes());
  EXPECT_NE(slice(x, {{}, {0, 2}}).bytes(), x.bytes());
  EXPECT_THAT(select(x, 1, 1).to_vector(), ElementsAre(1, 4, 7, 10));
}

TEST(IndexOps, TakeAlongAnyAxis) {
  const Tensor x = counting({3, 4});
  EXPECT_THAT(take(x, indices({2, 0, -1}), 0).to_vector(), ElementsAre(8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11));
  const Tensor grid = Tensor::from<std::int32_t>({0, 3, 1, 1}, {2, 2});
  const Tensor y = take(x, grid, 1);
  EXPECT_EQ(y.shape(), (Shape{3, 2, 2}));
  EXPECT_THAT(select(y, 1).to_vector(), ElementsAre(4, 7, 5, 5));
}

TEST(IndexOps, ConcatenateAndStack) {
  const std::array parts{counting({2, 2}), counting({2, 1})};
  EXPECT_THAT(concatenate(parts, 1).to_vector(), ElementsAre(0, 1, 0, 2, 3, 1));
  EXPECT_THAT(concatenate(parts, -1).to_vector(), ElementsAre(0, 1, 0, 2, 3, 1));
  const std::array rows{Tensor::from<float>({1, 2}), Tensor::from<float>({3, 4})};
  EXPECT_THAT(stack(rows).to_vector(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(stack(rows, -1).to_vector(), ElementsAre(1, 3, 2, 4));
  const std::array mixed{Tensor::ones({1}, float16), Tensor::ones({1}, float32)};
  EXPECT_EQ(concatenate(mixed).dtype(), float32);
  const std::vector<Tensor> many(40, Tensor::ones({1}));
  EXPECT_EQ(concatenate(many).shape(), Shape{40});
}

TEST(IndexOps, OneHot) {
  EXPECT_THAT(one_hot(indices({2, 0}), 3).to_vector(), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(one_hot(Tensor::from<std::int32_t>({0, 1, 1, 0}, {2, 2}), 2, uint8).shape(), (Shape{2, 2, 2}));
}

TEST(IndexOps, Gradients) {
  const Tensor x = uniform_leaf({4, 3, 2}, 1), y = uniform_leaf({4, 5, 2}, 2);
  check_gradients([&] { return slice(x, {{1, 3}}); }, {x});
  check_gradients([&] { return slice(x, {{.start = 3, .step = -2}, {1, 3}}); }, {x});
  check_gradients([&] { return select(x, 1, 2); }, {x});
  check_gradients([&] { return take(x, indices({2, 0, 2, -1}), 1); }, {x});
  check_gradients([&] { return concatenate(std::array{x, y, x}, 1); }, {x, y});
  check_gradients([&] { return concatenate(std::array{x, x}); }, {x});
  check_gradients([&] { return stack(std::array{x, x}, 1); }, {x});
}

TEST(IndexOps, EmptySliceGivesZeroGradient) {
  const Tensor x = Tensor::ones({3}).set_requires_grad();
  sum(slice(x, {{2, 1}})).backward();
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(0, 0, 0));
}

TEST(IndexOps, Refusals) {
  const Tensor x = Tensor::ones({3, 4});
  EXPECT_THAT(message_of<ShapeError>([&] { slice(x, {{}, {}, {}}); }), HasSubstr("more entries than"));
  EXPECT_THAT(message_of<ValueError>([&] { slice(x, {{0, 1, 0}}); }), HasSubstr("step"));
  EXPECT_THAT(message_of<ShapeError>([&] { select(x, 3); }), HasSubstr("index 3 is out of range"));
  EXPECT_THAT(message_of<ShapeError>([&] { take(x, indices({0, 7})); }), HasSubstr("index 7 at position 1"));
  EXPECT_THROW(take(x, Tensor::ones({2})), DTypeError);
  EXPECT_THAT(message_of<ShapeError>([&] { one_hot(indices({1, -1}), 3); }), HasSubstr("index -1"));
  EXPECT_THAT(message_of<ShapeError>([&] { concatenate(std::span<const Tensor>{}); }),
              HasSubstr("at least one tensor"));
  const std::array clash{x, Tensor::ones({3, 4, 1})};
  EXPECT_THAT(message_of<ShapeError>([&] { concatenate(clash); }),
              HasSubstr("Cannot concatenate (3, 4) and (3, 4, 1)"));
}

TEST(IndexOps, OpenEndsAndLongSteps) {
  const Tensor x = Tensor::from<float>({0, 1, 2, 3, 4}, {5});
  EXPECT_THAT(slice(x, {Slice{.step = -1}}).to_vector(), testing::ElementsAre(4, 3, 2, 1, 0));
  EXPECT_THAT(slice(x, {Slice{.start = 1, .step = -1}}).to_vector(), testing::ElementsAre(1, 0));
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(slice(x, {Slice{.step = far}}).to_vector(), testing::ElementsAre(0));
  EXPECT_THAT(slice(x, {Slice{.step = -far - 1}}).to_vector(), testing::ElementsAre(4));
  EXPECT_THAT(slice(x, {Slice{.start = 1, .stop = far, .step = 3}}).to_vector(), testing::ElementsAre(1, 4));
}

TEST(IndexOps, IndicesAreCheckedAgainInBackward) {
  const Tensor x = Tensor::ones({5, 2}), indices = Tensor::from<std::int64_t>({0, 4}, {2});
  x.set_requires_grad();
  const Tensor y = sum(take(x, indices));
  indices.data<std::int64_t>()[1] = 1000000;  // through a pointer that nobody counts
  EXPECT_THROW(y.backward(), ShapeError);
}

}  // namespace
}  // namespace everyo
