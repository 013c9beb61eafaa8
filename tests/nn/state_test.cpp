// state_dict, load_state_dict: what a model saves and takes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/dense.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_nn;  // NOLINT: the tests' own modules

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& [key, value] : state) copy.emplace_back(key, value.copy());
  return copy;
}

TEST(State, ParametersThenBuffersTiedOnceAndLive) {
  Net net;
  const StateDict state = net.state_dict();
  ASSERT_EQ(state.size(), 8u);
  EXPECT_EQ(state[0].first, "stem.weight");
  EXPECT_EQ(state[7].first, "blocks.0.watch.mean");
  EXPECT_EQ(state[0].second.body(), net.stem.weight.tensor().body());
}

TEST(State, LoadGivesBackTheBitsAndKeepsSlots) {
  Net net;
  net.eval();
  const Tensor x = ramp({3, 4});
  const std::string before = bits(net(x));
  const StateDict saved = copy_of(net.state_dict());
  const Tensor slot = net.parameters()[0];
  for (const Tensor& each : net.parameters()) each.assign(Tensor::zeros(each.shape()));
  EXPECT_NE(bits(net(x)), before);
  const LoadReport report = net.load_state_dict(saved);
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_THAT(report.unexpected, IsEmpty());
  EXPECT_EQ(bits(net(x)), before);
  EXPECT_EQ(net.parameters()[0].body(), slot.body());
}

TEST(State, ValuesAreConverted) {
  Dense dense(2, 2, 1);
  const StateDict wide{{"weight", Tensor::from<double>({1, 2, 3, 4.1}, {2, 2})}};
  (void)dense.load_state_dict(wide);
  EXPECT_EQ(dense.weight.tensor().data<float>()[3], 4.1F);
}

TEST(State, WrongKeysAndShapesAreNamedAndNothingIsWritten) {
  Net net;
  const std::string stem = bits(net.stem.weight);
  StateDict state = copy_of(net.state_dict());
  state[0].second.write<float>()[0] += 1;
  state[1].first = "blocks.0.upper.weight";
  EXPECT_EQ(error_of([&] { (void)net.load_state_dict(state); }),
            "[load_state_dict] Missing keys: 'blocks.0.up.weight'; Unexpected keys: 'blocks.0.upper.weight'; load the "
            "state of the same architecture, or with .strict = false");
  EXPECT_EQ(bits(net.stem.weight), stem);
  state[1] = {"blocks.0.up.weight", Tensor::zeros({8, 4})};
  EXPECT_THAT(error_of([&] { (void)net.load_state_dict(state); }),
              HasSubstr("parameter 'blocks.0.up.weight' expects shape (4, 8), got (8, 4)"));
  state[1].second = Tensor::zeros({4, 8});
  state[7].second = Tensor::zeros({3});
  EXPECT_THAT(error_of([&] { (void)net.load_state_dict(state); }),
              HasSubstr("Buffer 'blocks.0.watch.mean' expects shape (4,), got (3,)"));
  EXPECT_EQ(bits(net.stem.weight), stem);
  state[7] = state[0];
  EXPECT_THAT(error_of([&] { (void)net.load_state_dict(state); }), HasSubstr("'stem.weight' is given twice"));
  try {
    (void)net.load_state_dict({});
    FAIL();
  } catch (const StateError& e) {
    EXPECT_EQ(e.kind(), ErrorKind::serialization);
  }
}

TEST(State, WithoutStrictWhatIsLeftIsReported) {
  Net net;
  StateDict state = copy_of(net.state_dict());
  state[0].second.write<float>()[0] = 42;
  state[1].first = "extra";
  const LoadReport report = net.load_state_dict(state, {.strict = false});
  EXPECT_THAT(report.missing, ElementsAre("blocks.0.up.weight"));
  EXPECT_THAT(report.unexpected, ElementsAre("extra"));
  EXPECT_EQ(net.stem.weight.tensor().data<float>()[0], 42);
}

TEST(State, ATiedParameterIsTakenUnderAnyOfItsNames) {
  Net net;
  StateDict state = copy_of(net.state_dict());
  state[0].first = "head.weight";
  state[0].second.write<float>()[0] = 42;
  (void)net.load_state_dict(state);
  EXPECT_EQ(net.stem.weight.tensor().data<float>()[0], 42);
  state.emplace_back("stem.weight", state[0].second.copy());
  (void)net.load_state_dict(state);
  state.back().second.write<float>()[1] = 7;
  EXPECT_EQ(error_of([&] { (void)net.load_state_dict(state); }),
            "[load_state_dict] 'stem.weight' and 'head.weight' are one parameter and have different values; load the "
            "state of a model in which they are tied, or leave one out");
  EXPECT_NE(net.stem.weight.tensor().data<float>()[1], 7);
}

struct Two : Module<Two> {
  void visit(Visitor& v) { v("stem", stem)("head", head); }
  Dense stem{4, 4, 1}, head{4, 4, 2};
};

TEST(State, TwoOfTheModulesOwnTensorsMayBeExchanged) {
  Two net;
  const std::string stem = bits(net.stem.weight), head = bits(net.head.weight);
  ASSERT_NE(stem, head);
  net.load_state_dict(StateDict{{"stem.weight", net.head.weight}, {"head.weight", net.stem.weight}}, {.strict = false});
  EXPECT_EQ(bits(net.stem.weight), head);
  EXPECT_EQ(bits(net.head.weight), stem);
}

}  // namespace
}  // namespace everyo
