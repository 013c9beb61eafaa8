#include "everyo/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "everyo/error.h"

namespace everyo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StateTree sample() {
  StateTree state;
  state["step"] = 3;
  state["name"] = "adam";
  state["on"] = true;
  state["groups"]["0"]["lr"] = 0.1;
  state["groups"]["1"]["lr"] = 0.2;
  const std::array<float, 2> values{1, 2};
  state["moments"] = StateArray::copy_of({float32, {2}}, std::as_bytes(std::span(values)));
  return state;
}

template <class F>
std::string message(F&& call) {
  try {
    call();
  } catch (const StateError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(StateTree, KeepsValuesAndTheirTypes) {
  const StateTree state = sample();
  EXPECT_EQ(state.get<std::int64_t>("step"), 3);
  EXPECT_EQ(state.get<std::string>("name"), "adam");
  EXPECT_EQ(state.get<bool>("on"), true);
  EXPECT_EQ(state.at("groups").at("1").get<double>("lr"), 0.2);
  EXPECT_EQ(state.at("groups").entries().size(), 2u);
  EXPECT_TRUE(state.at("step").is<std::int64_t>());
  EXPECT_FALSE(state.at("step").is<double>());
  EXPECT_TRUE(state.contains("on"));
  EXPECT_FALSE(state.contains("off"));
  EXPECT_FALSE(state.at("on").contains("x"));
}

TEST(StateTree, ComparesDeeply) {
  StateTree other = sample();
  EXPECT_EQ(sample(), other);
  other["groups"]["1"]["lr"] = 0.3;
  EXPECT_NE(sample(), other);
  other = sample();
  other["step"] = 3.0;
  EXPECT_NE(sample(), other);
  other = sample();
  const std::array<float, 2> values{1, 3};
  other["moments"] = StateArray::copy_of({float32, {2}}, std::as_bytes(std::span(values)));
  EXPECT_NE(sample(), other);
}

TEST(StateTree, ErrorsNameTheKeyAndWhatIsThere) {
  StateTree state = sample();
  EXPECT_THAT(message([&] { static_cast<void>(state.at("beta")); }),
              AllOf(HasSubstr("'beta' is missing"), HasSubstr("'step'"), HasSubstr("'moments'")));
  EXPECT_THAT(message([&] { static_cast<void>(state.get<double>("step")); }),
              AllOf(HasSubstr("'step' is of type integer"), HasSubstr("need number")));
  EXPECT_THAT(message([&] { static_cast<void>(state.at("name").as<StateArray>()); }), HasSubstr("need array"));
  EXPECT_THAT(message([&] { state["step"]["inner"] = 1; }), HasSubstr("need map"));
  EXPECT_THAT(message([&] { static_cast<void>(StateTree().at("x")); }), HasSubstr("no keys"));
}

TEST(StateArray, OwnsItsBytes) {
  StateArray array;
  {
    std::vector<std::int32_t> values{1, 2, 3};
    array = StateArray::copy_of({int32, {3}}, std::as_bytes(std::span(values)));
    values.assign(3, 0);
  }
  EXPECT_EQ(std::to_integer<int>(array.bytes[4]), 2);
  const StateArray copy = array;
  EXPECT_EQ(copy.bytes.data(), array.bytes.data());  // shared, not copied
}

TEST(StateArray, SizesAndShardsAreChecked) {
  const std::array<float, 6> values{};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_THROW(StateArray::copy_of({float32, {5}}, bytes), ValueError);
  EXPECT_THROW(StateArray::copy_of({float64, {6}}, bytes), ValueError);
  StateArray array = StateArray::copy_of({float32, {2, 3}}, bytes);
  array.shard = ShardInfo{.full_shape = {8, 3}, .offset = {6, 0}};
  EXPECT_NO_THROW(array.check());
  for (const ShardInfo& wrong : {ShardInfo{{8, 3}, {7, 0}}, ShardInfo{{8, 3}, {6, 1}}, ShardInfo{{8}, {6}},
                                 ShardInfo{{1, 3}, {0, 0}}, ShardInfo{{8, 3}, {0}}}) {
    array.shard = wrong;
    EXPECT_THROW(array.check(), ValueError) << to_string(wrong.full_shape) << to_string(wrong.offset);
  }
}

/// A user's stateful object.
class Counter final : public Stateful {
 public:
  [[nodiscard]] StateTree state() const override {
    StateTree state;
    state["count"] = count;
    return state;
  }
  void load(const StateTree& state) override { count = state.get<std::int64_t>("count"); }
  std::int64_t count = 0;
};

TEST(Stateful, RoundTrips) {
  Counter saved, loaded;
  saved.count = 7;
  Stateful& interface = loaded;
  interface.load(saved.state());
  EXPECT_EQ(loaded.count, 7);
  EXPECT_THROW(interface.load(StateTree()), StateError);
  EXPECT_EQ(loaded.count, 7);
}

}  // namespace
}  // namespace everyo
