#include <gmock/gmock.h>

#include <cmath>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

using testing::Each;
using testing::HasSubstr;

Tensor labels(std::initializer_list<std::int64_t> values) { return Tensor::from<std::int64_t>(values); }

TEST(CrossEntropyOps, AgreesWithLogSoftmax) {
  const Tensor x = uniform_leaf({3, 4}, 1, -2, 2).detach();
  const Tensor y = labels({2, 0, 3});
  const auto rows = cross_entropy(x, y, {.reduction = Reduction::none}).to_vector();
  const auto log_p = log_softmax(x).to_vector();
  EXPECT_NEAR(rows[0], -log_p[2], 1e-14);  // float64, an ulp or two
  EXPECT_NEAR(rows[2], -log_p[11], 1e-14);
  EXPECT_NEAR(cross_entropy(x, y).item(), (rows[0] + rows[1] + rows[2]) / 3, 1e-14);
  EXPECT_NEAR(cross_entropy(x, y, {.reduction = Reduction::sum}).item(), rows[0] + rows[1] + rows[2], 1e-14);
  EXPECT_NEAR(cross_entropy(x, one_hot(y, 4, float64)).item(), cross_entropy(x, y).item(), 1e-14);
  EXPECT_EQ(cross_entropy(x, reshape(y, {3, 1})).item(), cross_entropy(x, y).item());
  EXPECT_EQ(cross_entropy(x, cast(y, int32)).item(), cross_entropy(x, y).item());
  EXPECT_EQ(cross_entropy(x, cast(y, uint8)).item(), cross_entropy(x, y).item());
}

TEST(CrossEntropyOps, GradientsOfEveryForm) {
  for (const std::int64_t k : {4, 70}) {
    const Tensor x = uniform_leaf({5, k}, 1, -2, 2), soft = uniform_leaf({5, k}, 2, 0.1, 0.9);
    const Tensor y = labels({2, 0, -7, 3, 1});
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      check_gradients([&] { return cross_entropy(x, y, {.reduction = reduction, .ignore_index = -7}); }, {x});
      check_gradients([&] { return cross_entropy(x, soft, {.reduction = reduction}); }, {x, soft});
    }
  }
}

// The float32 forms keep other things than the float64 one: exponentials, or norms beyond 64 classes.
TEST(CrossEntropyOps, Float32GradientsAgreeWithFloat64) {
  for (const std::int64_t k : {1, 10, 64, 65, 300}) {
    const Tensor x = uniform_leaf({40, k}, 3, -2, 2);
    const Tensor narrow = cast(x.detach(), float32).set_requires_grad();
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < 40; ++i) list.push_back(i == 5 ? -1 : i % k);
    const Tensor y = Tensor::from<std::int64_t>(list, {40});
    const CrossEntropyOptions options{.ignore_index = -1};
    const Tensor loss = cross_entropy(x, y, options), narrow_loss = cross_entropy(narrow, y, options);
    EXPECT_NEAR(narrow_loss.item(), loss.item(), 1e-6 * (1 + loss.item()));  // a few ulp of float32
    loss.backward();
    narrow_loss.backward();
    const auto want = x.grad().to_vector(), got = narrow.grad().to_vector();
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-7) << k << " " << i;
  }
}

// numerics N03: all labels ignored is loss 0 and gradient 0, for every reduction.
TEST(CrossEntropyOps, N03_AllIgnored) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    const Tensor x = Tensor::from<float>({1, 2, NAN, 4, 5, 6}, {2, 3}).set_requires_grad();
    const Tensor loss = cross_entropy(x, labels({-1, -1}), {.reduction = reduction, .ignore_index = -1});
    EXPECT_THAT(loss.to_vector(), Each(0));
    const Tensor seed = Tensor::ones(loss.shape());
    loss.backward({.seed = &seed});
    EXPECT_THAT(x.grad().to_vector(), Each(0));
  }
}

// numerics N04: the message names the label and its row.
TEST(CrossEntropyOps, N04_LabelOutOfRange) {
  const Tensor x = Tensor::ones({3, 5});
  const std::string message = message_of<ValueError>([&] {
    cross_entropy(x, labels({1, -1, -4}), {.ignore_index = -1});
  });
  EXPECT_THAT(message, HasSubstr("label -4 in row 2"));
  EXPECT_THAT(message, HasSubstr("0 to 4"));
  EXPECT_THAT(message_of<ValueError>([&] { cross_entropy(x, labels({5, 0, 0})); }), HasSubstr("label 5 in row 0"));
}

// numerics N05: an ignore value outside the classes works for every reduction, and so does one inside.
TEST(CrossEntropyOps, N05_IgnoreValueAnywhere) {
  const Tensor x = Tensor::from<float>({0, 0, 0, 3, 0, 0}, {2, 3});
  for (const std::int64_t ignored : {255, -100, 2}) {
    const Tensor y = labels({ignored, 0});
    const double row = std::log(1 + 2 * std::exp(-3.0));
    const auto rows = cross_entropy(x, y, {.reduction = Reduction::none, .ignore_index = ignored}).to_vector();
    EXPECT_EQ(rows[0], 0);
    EXPECT_NEAR(rows[1], row, 1e-7);  // float32
    EXPECT_NEAR(cross_entropy(x, y, {.reduction = Reduction::sum, .ignore_index = ignored}).item(), row, 1e-7);
    EXPECT_NEAR(cross_entropy(x, y, {.ignore_index = ignored}).item(), row, 1e-7);
  }
}

TEST(CrossEntropyOps, Refusals) {
  EXPECT_THAT(message_of<ShapeError>([] { cross_entropy(Tensor::ones({3}), labels({0})); }),
              HasSubstr("(batch, classes)"));
  EXPECT_THAT(message_of<ShapeError>([] {
                cross_entropy(Tensor::ones({3, 2}), labels({0, 1}));
              }),
              HasSubstr("targets (2,)"));
  EXPECT_THROW(cross_entropy(Tensor::ones({3, 2}), Tensor::ones({3})), ShapeError);
  EXPECT_THROW(cross_entropy(Tensor::ones({3, 2}, int64), labels({0, 1, 1})), DTypeError);
  EXPECT_THROW(cross_entropy(Tensor::ones({3, 2}), Tensor::ones({3, 2}), {.ignore_index = 1}), ValueError);
}

TEST(CrossEntropyOps, Float32UnderAutocast) {
  const Tensor x = Tensor::ones({2, 3}, float16);
  EXPECT_EQ(cross_entropy(x, labels({0, 1})).dtype(), float16);
  const Scoped<&Context::autocast> on(true);
  EXPECT_EQ(cross_entropy(x, labels({0, 1})).dtype(), float32);
}

}  // namespace
}  // namespace everyo
