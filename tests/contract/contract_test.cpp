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

}  // namespace
}  // namespace everyo_test::contract
