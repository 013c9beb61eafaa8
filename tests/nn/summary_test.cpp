#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace testing_nn;  // NOLINT: the tests' own modules

struct Wide : Module<Wide> {
  void visit(Visitor& v) { v("first", first)("second", second); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return second(first(x)); }
  Dense first{4, 300, 1}, second{300, 10, 2};
};

TEST(Summary, ListsLayersTypesShapesAndParameters) {
  Wide net;
  EXPECT_EQ(net.summary({32, 4}),
            "Layer    Type   Output shape  Parameters\n"
            "----------------------------------------\n"
            "(model)  Wide   (32, 10)               0\n"
            "first    Dense  (32, 300)          1,200\n"
            "second   Dense  (32, 10)           3,000\n"
            "----------------------------------------\n"
            "Total parameters: 4,200\n"
            "Trainable parameters: 4,200\n");
  EXPECT_EQ(net.first.active_hooks(), nullptr);  // nothing stays behind
}

TEST(Summary, WithoutAnInputHasNoShapesAndCountsTiedOnce) {
  Net net;
  const std::string text = net.summary();
  EXPECT_THAT(text, HasSubstr("Total parameters: 208"));
  EXPECT_THAT(text.substr(text.find("stem")), Not(HasSubstr("(")));
}

struct Refuses : Module<Refuses> {
  [[nodiscard]] Tensor forward(const Tensor&) const { throw StateError("[Refuses] always"); }
};
TEST(Summary, AnInputThatDoesNotFitLeavesNoHooks) {
  Refuses net;
  EXPECT_THROW((void)net.summary({2, 2}), StateError);
  EXPECT_EQ(net.active_hooks(), nullptr);
}

}  // namespace
}  // namespace everyo
