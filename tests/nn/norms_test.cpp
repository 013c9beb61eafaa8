#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "everyo/nn.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_nn;  // NOLINT: the tests' own helpers

std::vector<std::string> keys_of(const ModuleBase& module) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : module.state_dict()) keys.push_back(key);
  return keys;
}

// Channels 1, 3 and 2, -2: means 2 and 0, biased variances 1 and 4, unbiased 2 and 8.
Tensor two_rows() { return Tensor::from<float>({1, 2, 3, -2}, {2, 2}); }

TEST(BatchNorm1D, TrainsByTheBatchAndMovesTheRunningStatistics) {
  const BatchNorm1D layer(2, {.eps = 1e-30, .momentum = 0.25});
  EXPECT_THAT(layer(two_rows()).to_vector(), ElementsAre(-1, 1, 1, -1));
  EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(0.5, 0));  // 0.75 * 0 + 0.25 * batch
  EXPECT_THAT(layer.running_var->tensor().to_vector(), ElementsAre(1.25, 2.75));
  (void)layer(two_rows());
  EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(0.875, 0));
  EXPECT_THAT(layer.running_var->tensor().to_vector(), ElementsAre(1.4375, 4.0625));
}

TEST(BatchNorm1D, EvaluatesByTheRunningStatistics) {
  BatchNorm1D layer(2, {.eps = 1e-30});
  layer.eval();
  EXPECT_EQ(bits(layer(two_rows())), bits(two_rows()));  // of mean 0 and variance 1
  const StateDict state{{"weight", Tensor::from<float>({2, 1})},
                        {"bias", Tensor::from<float>({0, 7})},
                        {"running_mean", Tensor::from<float>({1, 0})},
                        {"running_var", Tensor::from<float>({4, 1})}};
  (void)layer.load_state_dict(state);
  EXPECT_THAT(layer(two_rows()).to_vector(), ElementsAre(0, 9, 2, 5));
  EXPECT_THAT(layer(Tensor::from<float>({1, 2}, {1, 2})).to_vector(), ElementsAre(0, 9));  // one row is enough
  EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(1, 0));
}

TEST(BatchNorm1D, WithoutTrackingEvaluatesByTheBatch) {
  BatchNorm1D layer(2, {.eps = 1e-30, .track_running_stats = false});
  EXPECT_THAT(keys_of(layer), ElementsAre("weight", "bias"));
  layer.eval();
  EXPECT_THAT(layer(two_rows()).to_vector(), ElementsAre(-1, 1, 1, -1));
}

TEST(BatchNorm1D, HasTheStateOfItsOptions) {
  EXPECT_THAT(keys_of(BatchNorm1D(2)), ElementsAre("weight", "bias", "running_mean", "running_var"));
  EXPECT_THAT(keys_of(BatchNorm1D(2, {.affine = false})), ElementsAre("running_mean", "running_var"));
  EXPECT_EQ(BatchNorm1D(2).type_name(), "BatchNorm1D");
  BatchNorm1D layer(3);
  EXPECT_EQ(layer.parameters().size(), 2u);
  EXPECT_EQ(layer.named_buffers().size(), 2u);
}

TEST(BatchNorm1D, ARecomputationMovesNothing) {
  const BatchNorm1D layer(2);
  (void)layer(two_rows());
  const std::string mean = bits(*layer.running_mean), variance = bits(*layer.running_var);
  {
    const Scoped<&Context::recompute> again(true);
    (void)layer(two_rows());
  }
  (void)layer(Tensor::empty({0, 2}));
  EXPECT_EQ(bits(*layer.running_mean), mean);
  EXPECT_EQ(bits(*layer.running_var), variance);
}

TEST(BatchNorm1D, AnEmptyBatchGoesThrough) {
  const BatchNorm1D layer(2);
  EXPECT_EQ(layer(Tensor::empty({0, 2})).shape(), (Shape{0, 2}));
}

TEST(BatchNorm1D, ShardsMoveItByTheirMean) {
  const BatchNorm1D layer(2, {.momentum = 0.5});
  std::array<BufferUpdates, 2> shards;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    const Scoped<&Context::buffers> to(&shards[shard]);
    (void)layer(two_rows() + static_cast<double>(shard));  // means 2 and 0, then 3 and 1
  }
  EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(0, 0));
  apply_updates(shards);
  EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(1.25, 0.25));
  EXPECT_THAT(layer.running_var->tensor().to_vector(), ElementsAre(1.5, 4.5));
}

TEST(BatchNorm1D, ClonesApart) {
  BatchNorm1D layer(2);
  (void)layer(two_rows());
  const BatchNorm1D copy = layer.clone();
  EXPECT_EQ(bits(*copy.running_mean), bits(*layer.running_mean));
  (void)copy(two_rows());
  EXPECT_NE(bits(*copy.running_mean), bits(*layer.running_mean));
  layer.weight->tensor().assign(Tensor::zeros({2}));
  EXPECT_THAT(copy.weight->tensor().to_vector(), ElementsAre(1, 1));
}

TEST(BatchNorm1D, RunsOnMetaTensorsAndIsMaterialised) {
  const MetaScope meta;
  BatchNorm1D layer(2);
  const Tensor y = layer(Tensor::empty({4, 2}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.shape(), (Shape{4, 2}));
  materialise(layer, 0);
  EXPECT_THAT(layer.weight->tensor().to_vector(), ElementsAre(1, 1));
  EXPECT_THAT(layer.running_var->tensor().to_vector(), ElementsAre(1, 1));
}

TEST(BatchNorm1D, TrainsItsParameters) {
  BatchNorm1D layer(2);
  const Tensor x = two_rows(), seed = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  layer(x).backward({.seed = &seed});
  EXPECT_THAT(layer.bias->grad().to_vector(), ElementsAre(4, 6));
  const auto of_weight = layer.weight->grad().to_vector();
  EXPECT_NEAR(of_weight[0], 2, 1e-4);  // eps in 1 / sqrt(1 + eps)
  EXPECT_NEAR(of_weight[1], -2, 1e-4);
}

TEST(BatchNorm1D, FloatsOfAnyWidthKeepTheBuffersFloat32) {
  for (const DType dtype : {float64, float16, bfloat16}) {
    const BatchNorm1D layer(2, {.momentum = 1});
    EXPECT_EQ(layer(cast(two_rows(), dtype)).dtype(), dtype);
    EXPECT_THAT(layer.running_mean->tensor().to_vector(), ElementsAre(2, 0));
    EXPECT_EQ(layer.running_mean->tensor().dtype(), float32);
  }
}

TEST(BatchNorm1D, SaysWhatDoesNotFit) {
  const BatchNorm1D layer(2);
  EXPECT_EQ(error_of([&] {
              (void)layer(ramp({2, 3, 2}));
            }),
            "[BatchNorm1D] x is (2, 3, 2); it takes 2-D input, (batch, features)");
  EXPECT_EQ(error_of([&] {
              (void)layer(ramp({2, 3}));
            }),
            "[BatchNorm1D] x is (2, 3); its last axis must be 2, the layer's num_features");
  EXPECT_THAT(error_of([&] { (void)layer(ramp({1, 2})); }), HasSubstr("one value a channel"));
  EXPECT_THAT(error_of([] { (void)BatchNorm1D(2, {.eps = 0}); }), HasSubstr("eps is 0"));
  EXPECT_THAT(error_of([] { (void)BatchNorm1D(2, {.momentum = 1.5}); }), HasSubstr("momentum is 1.5"));
  EXPECT_THAT(error_of([] { (void)BatchNorm1D(0); }), HasSubstr("num_features is 0; it must be positive"));
  EXPECT_THROW(BatchNorm1D(2, {.momentum = std::nan("")}), ValueError);
  EXPECT_THROW(BatchNorm1D(-1), ShapeError);
}

TEST(BatchNorm2D, NormalisesEachChannelOverBatchAndImage) {
  const BatchNorm2D layer(2, {.eps = 1e-30, .momentum = 1});
  // One image of one column of two pixels: the rows of the 1-D layer.
  EXPECT_THAT(layer(reshape(two_rows(), {1, 2, 1, 2})).to_vector(), ElementsAre(-1, 1, 1, -1));
  EXPECT_THAT(layer.running_var->tensor().to_vector(), ElementsAre(2, 8));
  EXPECT_EQ(error_of([&] { (void)layer(two_rows()); }),
            "[BatchNorm2D] x is (2, 2); it takes 4-D input, (batch, height, width, channels)");
  EXPECT_THAT(error_of([] { (void)BatchNorm2D(2, {.eps = -1}); }), HasSubstr("[BatchNorm2D] eps is -1"));
}

TEST(LayerNorm, NormalisesItsTrailingAxes) {
  const LayerNorm row(2, {.eps = 1e-30}), both({2, 2}, {.eps = 1e-30});
  EXPECT_THAT(row(two_rows()).to_vector(), ElementsAre(-1, 1, 1, -1));
  EXPECT_EQ(bits(both(two_rows())), bits(layer_norm(two_rows(), {2, 2}, {}, {}, {.eps = 1e-30})));
  EXPECT_EQ(both.weight->shape(), (Shape{2, 2}));
  EXPECT_THAT(keys_of(LayerNorm(3)), ElementsAre("weight", "bias"));
  EXPECT_THAT(keys_of(LayerNorm(3, {.affine = false})), testing::IsEmpty());
  EXPECT_EQ(bits(LayerNorm(2).clone()(two_rows())), bits(LayerNorm(2)(two_rows())));
}

TEST(LayerNorm, SaysWhatDoesNotFit) {
  EXPECT_THAT(error_of([] { (void)LayerNorm(3)(two_rows()); }), HasSubstr("its trailing axes must be (3,)"));
  EXPECT_THAT(error_of([] { (void)LayerNorm(0); }), HasSubstr("positive normalized_shape"));
  EXPECT_THAT(error_of([] { (void)LayerNorm(Shape{}); }), HasSubstr("positive normalized_shape"));
  EXPECT_THAT(error_of([] { (void)LayerNorm(2, {.eps = 0}); }), HasSubstr("[LayerNorm] eps is 0"));
}

TEST(GroupNorm, NormalisesGroupsOfChannels) {
  const GroupNorm layer(2, 4, {.eps = 1e-30});
  const Tensor x = Tensor::from<float>({1, 3, 0, 0, 1, 3, 4, 4}, {1, 2, 4});
  EXPECT_THAT(layer(x).to_vector(), ElementsAre(-1, 1, -1, -1, -1, 1, 1, 1));
  EXPECT_THAT(keys_of(layer), ElementsAre("weight", "bias"));
  EXPECT_THAT(keys_of(GroupNorm(2, 4, {.affine = false})), testing::IsEmpty());
  EXPECT_EQ(bits(layer.clone()(x)), bits(layer(x)));
}

TEST(GroupNorm, SaysWhatDoesNotFit) {
  EXPECT_THAT(error_of([] { (void)GroupNorm(2, 4)(ramp({3, 6})); }), HasSubstr("its last axis 4"));
  EXPECT_THAT(error_of([] { (void)GroupNorm(2, 4)(ramp({4})); }), HasSubstr("it must have a batch"));
  EXPECT_THAT(error_of([] { (void)GroupNorm(3, 4); }), HasSubstr("3 groups of 4 channels"));
  EXPECT_THAT(error_of([] { (void)GroupNorm(0, 4); }), HasSubstr("positive"));
  EXPECT_THAT(error_of([] { (void)GroupNorm(2, 4, {.eps = -1}); }), HasSubstr("[GroupNorm] eps is -1"));
}

}  // namespace
}  // namespace everyo
