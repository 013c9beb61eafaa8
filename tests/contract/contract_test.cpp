#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "contract/laws.h"

// Every op of the registry against every law.
namespace everyo_test::contract {
namespace {

class EveryOp : public testing::TestWithParam<std::tuple<const eo::Op*, Law>> {};

TEST_P(EveryOp, Obeys) {
  const auto [op, law] = GetParam();
  const Samples* samples = samples_of(op->name);
  ASSERT_TRUE(samples) << "op '" << op->name << "' has no samples; add them in tests/contract (samples.h says how)";
  for (const std::string& finding : law.check({*op, *samples})) ADD_FAILURE() << op->name << ", " << finding;
}

INSTANTIATE_TEST_SUITE_P(Contract, EveryOp,
                         testing::Combine(testing::ValuesIn(eo::ops().begin(), eo::ops().end()),
                                          testing::ValuesIn(laws().begin(), laws().end())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)->name) + "_" + std::get<1>(test.param).name;
                         });

TEST(Registry, NamesEachOpOnceAndFindsIt) {
  std::set<std::string> names;
  for (const eo::Op* op : eo::ops()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_EQ(eo::find_op(op->name), op);
  }
  EXPECT_EQ(eo::find_op("no such op"), nullptr);
}

TEST(Registry, EverySampleIsOfAnOp) {
  std::set<std::string> seen;
  for (const Samples& samples : all_samples()) {
    EXPECT_TRUE(eo::find_op(samples.op)) << samples.op;
    EXPECT_TRUE(seen.insert(samples.op).second) << samples.op << " has two";
  }
}

// DESIGN's table of autocast, op by op. A `low` op is a matrix product or a convolution, nothing else.
TEST(Registry, HasThePoliciesOfTheTable) {
  const auto with = [](eo::CastPolicy policy) {
    std::vector<std::string> names;
    for (const eo::Op* op : eo::ops())
      if (op->policy == policy) names.emplace_back(op->name);
    return names;
  };
  EXPECT_THAT(with(eo::CastPolicy::low),
              testing::UnorderedElementsAre("matmul", "linear", "linear_activation", "conv2d", "conv2d_relu"));
  EXPECT_THAT(with(eo::CastPolicy::keep32),
              testing::UnorderedElementsAre("exp", "log", "sum", "mean", "softmax", "log_softmax", "cross_entropy",
                                            "cross_entropy_few", "cross_entropy_soft", "mse_loss", "mae_loss",
                                            "bce_with_logits_loss", "bce_loss"));
  EXPECT_THAT(with(eo::CastPolicy::promote),
              testing::UnorderedElementsAre("add", "subtract", "multiply", "divide", "maximum", "minimum", "equal",
                                            "not_equal", "less", "less_equal", "where"));
  EXPECT_THAT(with(eo::CastPolicy::follow),
              testing::UnorderedElementsAre(
                  "scale", "reciprocal", "negative", "sqrt", "abs", "clip", "power", "relu", "sigmoid", "tanh", "gelu",
                  "silu", "cast", "dropout", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "max", "min", "argmax",
                  "reshape", "transpose", "broadcast_to", "slice", "take", "concatenate", "one_hot", "batch_norm",
                  "batch_norm_activation", "batch_norm_eval", "batch_norm_eval_activation", "layer_norm",
                  "layer_norm_activation", "group_norm", "group_norm_activation"));
  EXPECT_THAT(with(eo::CastPolicy::unset), testing::IsEmpty());
}

}  // namespace
}  // namespace everyo_test::contract
