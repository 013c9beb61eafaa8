#include <gmock/gmock.h>

#include "everyo/ops.h"
#include "everyo/random.h"
#include "everyo/train.h"

namespace everyo {
namespace {

using testing::HasSubstr;

TEST(Factory, MlpHasTheShapesAndSeedsItSays) {
  const auto model = make_model("mlp", {.inputs = 64, .classes = 10, .seed = 7});
  const auto named = model->named_parameters();
  ASSERT_EQ(named.size(), 6u);
  EXPECT_EQ(named[0].first, "0.weight");
  EXPECT_EQ(named[0].second.shape(), (Shape{64, 128}));
  EXPECT_EQ(named[2].second.shape(), (Shape{128, 64}));
  EXPECT_EQ(named[4].second.shape(), (Shape{64, 10}));
  // layer i draws from seed + i, whichever model it stands in
  for (const std::size_t layer : {0u, 1u, 2u}) {
    const Tensor& weight = named[2 * layer].second;
    const Linear alone(weight.shape()[0], weight.shape()[1], {.seed = 7 + layer});
    EXPECT_EQ(alone.weight.tensor().to_vector(), weight.to_vector()) << layer;
  }
  EXPECT_EQ(model->forward_any(Tensor::zeros({3, 64})).shape(), (Shape{3, 10}));
}

TEST(Factory, CnnTakesSquareImagesAsRows) {
  const auto model = make_model("cnn", {.inputs = 64, .classes = 10, .seed = 7});
  const auto named = model->named_parameters();
  ASSERT_EQ(named.size(), 8u);
  EXPECT_EQ(named[0].second.shape(), (Shape{3, 3, 1, 32}));
  EXPECT_EQ(named[4].second.shape(), (Shape{3, 3, 32, 64}));
  EXPECT_EQ(named[6].second.shape(), (Shape{256, 10}));
  EXPECT_EQ(named[2].second.to_vector(), Conv2D(32, 32, 3, {.seed = 8}).weight.tensor().to_vector());
  EXPECT_EQ(model->forward_any(Tensor::zeros({3, 64})).shape(), (Shape{3, 10}));
  EXPECT_EQ(make_model("cnn", {.inputs = 784})->forward_any(Tensor::zeros({2, 784})).shape(), (Shape{2, 10}));
  for (const std::int64_t inputs : {63, 9, 0}) {
    try {
      make_model("cnn", {.inputs = inputs});
      FAIL() << inputs;
    } catch (const ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cnn takes square images of 4 by 4 pixels or more"));
    }
  }
}

TEST(LabelledRows, AreRowsOfNumbersAndClasses) {
  const ArrayDataset pixels = labelled_rows(Tensor::from<std::uint8_t>({0, 255, 51, 102, 0, 0, 0, 255}, {2, 2, 2}),
                                            Tensor::from<std::uint8_t>({3, 1}, {2, 1}));
  EXPECT_EQ(pixels.features.shape(), (Shape{2, 4}));
  EXPECT_EQ(pixels.features.dtype(), float32);
  EXPECT_EQ(pixels.features.to_vector(), (std::vector<double>{0, 1, 0.2F, 0.4F, 0, 0, 0, 1}));
  EXPECT_EQ(pixels.targets.dtype(), int64);
  EXPECT_EQ(pixels.targets.to_vector(), (std::vector<double>{3, 1}));
  const ArrayDataset numbers =
      labelled_rows(Tensor::from<double>({300, -2.5}, {2}), Tensor::from<std::int32_t>({0, 1}, {2}));
  EXPECT_EQ(numbers.features.shape(), (Shape{2, 1}));
  EXPECT_EQ(numbers.features.to_vector(), (std::vector<double>{300, -2.5})) << "only bytes are scaled";
  EXPECT_THROW(static_cast<void>(labelled_rows(Tensor::zeros({2, 3}), Tensor::zeros({2}))), DTypeError);
  EXPECT_THROW(static_cast<void>(labelled_rows(Tensor::zeros({2, 3}), Tensor::zeros({3}, int64))), ShapeError);
  EXPECT_THROW(static_cast<void>(labelled_rows(Tensor::zeros({2, 3}), Tensor::zeros({2, 2}, int64))), ShapeError);
}

TEST(Factory, UnknownNamesAreListed) {
  try {
    make_model("resnet");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown model 'resnet'; known: mlp, cnn"));
  }
  Linear layer(2, 2, {.seed = 0});
  try {
    make_optimizer("lion", layer.parameters());
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown optimizer 'lion'; known: sgd, adam, adamw"));
  }
}

TEST(Factory, SchedulesSpanTheRun) {
  const ScheduleOptions options{.steps = 60};
  EXPECT_EQ(make_schedule("constant", options)(59), 1);
  const Schedule step = make_schedule("step", options);
  EXPECT_EQ(step(19), 1);
  EXPECT_EQ(step(20), 0.1);
  EXPECT_NEAR(step(59), 0.01, 1e-17);  // 0.1 * 0.1 rounds
  const Schedule cosine = make_schedule("cosine", {.steps = 60, .warm_up = 10});
  EXPECT_EQ(cosine(0), 0.1);
  EXPECT_EQ(cosine(9), 1);
  EXPECT_EQ(cosine(10), 1);
  EXPECT_NEAR(cosine(35), 0.5, 1e-15);  // cos of a rounded pi / 2
  EXPECT_EQ(cosine(60), 0);
  for (const auto& [steps, warm_up] : {std::pair{0, 0}, {5, 5}, {5, -1}})
    EXPECT_THROW(static_cast<void>(make_schedule("step", {.steps = steps, .warm_up = warm_up})), ValueError);
  try {
    static_cast<void>(make_schedule("cosin", options));
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown schedule 'cosin'; known: constant, step, cosine"));
  }
}

TEST(Factory, EveryNameItTellsWorks) {
  for (const std::string& name : model_names()) EXPECT_GT(make_model(name)->num_parameters(), 0) << name;
  for (const std::string& name : optimizer_names()) {
    Linear layer(2, 2, {.seed = 0});
    EXPECT_GT(make_optimizer(name, layer.parameters())->lr(), 0) << name;
    EXPECT_EQ(make_optimizer(name, layer.parameters(), 0.25)->lr(), 0.25) << name;
  }
  for (const std::string& name : schedule_names()) EXPECT_EQ(make_schedule(name, {.steps = 1})(0), 1) << name;
}

}  // namespace
}  // namespace everyo
