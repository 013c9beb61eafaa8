#include "everyo/nn/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/dense.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_nn::bits;
using testing_nn::Block;
using testing_nn::Dense;
using testing_nn::error_of;
using testing_nn::ramp;
using testing_nn::total;

static_assert(!std::is_constructible_v<Sequential, Linear&, ReLU>, "a named module needs std::move");
static_assert(std::is_constructible_v<Sequential, Linear, ReLU>);
static_assert(std::is_nothrow_move_constructible_v<Sequential>);

std::vector<std::string> keys_of(const ModuleBase& module) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : module.state_dict()) keys.push_back(key);
  return keys;
}

TEST(Sequential, RunsItsModulesByNumber) {
  Sequential net{Linear(4, 8, {.seed = 1}), ReLU(), Block(8, 5), Linear(8, 2, {.seed = 2})};
  EXPECT_EQ(net.size(), 4u);
  EXPECT_THAT(keys_of(net), ElementsAre("0.weight", "0.bias", "2.up.weight", "2.down.weight", "3.weight", "3.bias"));
  const Tensor x = ramp({3, 4});
  Tensor y = x;
  for (std::size_t i = 0; i < net.size(); ++i) y = net[i].forward_any(y);
  EXPECT_EQ(bits(net(x)), bits(y));
  EXPECT_THROW((void)net[4], ValueError);
}

TEST(Sequential, OneModuleASequentialMovesAndPushBackNests) {
  Sequential one{Linear(4, 8, {.seed = 1})};
  EXPECT_EQ(one.size(), 1u);
  Sequential moved{std::move(one)};
  EXPECT_EQ(moved.size(), 1u);
  EXPECT_THAT(keys_of(moved), ElementsAre("0.weight", "0.bias"));
  Sequential nested;
  nested.push_back(std::move(moved)).push_back(ReLU());
  EXPECT_THAT(keys_of(nested), ElementsAre("0.0.weight", "0.0.bias"));
  EXPECT_EQ(bits(Sequential()(ramp({2, 2}))), bits(ramp({2, 2})));
}

TEST(Sequential, CloneKeepsTypesAndCopyOutsideIsAnError) {
  const Sequential net{Linear(4, 8, {.seed = 1}), ReLU(), Block(8, 5)};
  Sequential copy = net.clone();
  const Tensor x = ramp({3, 4});
  EXPECT_EQ(bits(copy(x)), bits(net(x)));
  for (const Tensor& slot : copy.parameters()) slot.assign(Tensor::zeros(slot.shape()));
  EXPECT_NE(bits(copy(x)), bits(net(x)));
  EXPECT_THAT(error_of([&] { const Sequential same(net); }), HasSubstr("copied outside clone()"));
}

TEST(Sequential, AModuleAddedLaterHasItsPathAtOnce) {
  Sequential net{Dropout(0.5), Dropout(0.5)};
  const Tensor x = Tensor::ones({4, 64});
  (void)net(x);
  net.push_back(Dropout(0.5));
  EXPECT_EQ(net[2].path(), "2");
}

TEST(Sequential, AWrongInputNamesTheLayer) {
  const Sequential net{Linear(4, 8, {.seed = 1}), ReLU()};
  EXPECT_THAT(error_of([&] { (void)net(ramp({2, 5})); }), HasSubstr("must be 4"));
}

// What ran, as op names.
std::vector<std::string> traced(const ModuleBase& net, const Tensor& x) {
  Tracer tracer;
  const Scoped<&Context::tracer> on(&tracer);
  (void)net.forward_any(x);
  std::vector<std::string> names;
  for (const Tracer::Step& step : tracer.steps) names.push_back(step.module + " " + step.op->name);
  return names;
}

template <class Act>
void expect_fused_equals_unfused(DType dtype) {
  const Linear::Options first{.seed = 1, .dtype = dtype}, second{.seed = 2, .bias = false, .dtype = dtype};
  const auto make = [&] { return Sequential{Linear(4, 16, first), Act(), Linear(16, 3, second), Act()}; };
  Sequential fused = make(), plain = make();
  std::size_t calls = 0;
  for (std::size_t i = 1; i < 4; i += 2) plain[i].hooks().after([&](const ModuleBase&, const Tensor*) { ++calls; });
  const Tensor x = Tensor::empty({5, 4}, dtype);
  x.assign(ramp({5, 4}));
  x.set_requires_grad();
  const Tensor x2 = x.copy().set_requires_grad();
  const Tensor a = fused(x), b = plain(x2);
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(bits(a), bits(b));
  const Tensor seed = Tensor::empty(a.spec());
  seed.assign(ramp(a.shape()));
  a.backward({.seed = &seed});
  b.backward({.seed = &seed});
  EXPECT_EQ(bits(x.grad()), bits(x2.grad()));
  const auto left = fused.parameters(), right = plain.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_EQ(bits(left[i].grad()), bits(right[i].grad())) << i;
}

TEST(Sequential, LinearFusedWithItsActivationGivesTheUnfusedBits) {
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    SCOPED_TRACE(name_of(dtype));
    expect_fused_equals_unfused<ReLU>(dtype);
    expect_fused_equals_unfused<Sigmoid>(dtype);
    expect_fused_equals_unfused<Tanh>(dtype);
    expect_fused_equals_unfused<GELU>(dtype);
    expect_fused_equals_unfused<SiLU>(dtype);
  }
}

TEST(Sequential, FusesOnlyALinearWithoutHooks) {
  Sequential net{Linear(4, 4, {.seed = 1}), ReLU(), ReLU(), Linear(4, 4, {.seed = 2})};
  const Tensor x = ramp({2, 4});
  EXPECT_THAT(traced(net, x), ElementsAre("0 linear_activation", "2 relu", "3 linear"));
  const auto hook = net[0].hooks().before([](const ModuleBase&, const Tensor*) {});
  EXPECT_THAT(traced(net, x), ElementsAre("0 linear", "1 relu", "2 relu", "3 linear"));
  net[0].hooks().remove(hook);
  EXPECT_THAT(traced(net.clone(), x), ElementsAre("0 linear_activation", "2 relu", "3 linear"));
}

TEST(Sequential, FusesANormToo) {
  const Sequential net{BatchNorm1D(4), ReLU(), BatchNorm1D(4), GELU(), LayerNorm(4), ReLU(), GroupNorm(2, 4), ReLU()};
  const Tensor x = ramp({3, 4});
  EXPECT_THAT(traced(net, x), ElementsAre("0 batch_norm_activation", "2 batch_norm", "2 gelu",
                                          "4 layer_norm_activation", "6 group_norm_activation"));
  Sequential plain = net.clone();
  for (std::size_t i = 1; i < net.size(); i += 2) plain[i].hooks().after([](const ModuleBase&, const Tensor*) {});
  EXPECT_EQ(bits(plain(x)), bits(net(x)));
}

TEST(Sequential, FusesAConv2DWithItsActivationToTheSameBits) {
  for (const DType dtype : {float32, float16}) {
    Sequential net{Conv2D(3, 8, 3, {.padding = "same", .seed = 1, .dtype = dtype}), ReLU(),
                   Conv2D(8, 5, 2, {.stride = 2, .seed = 2, .bias = false, .dtype = dtype}), Tanh(),
                   Conv2D(5, 5, 1, {.seed = 3, .dtype = dtype})};
    const Tensor x = Tensor::empty({2, 6, 5, 3}, dtype);
    x.assign(ramp({2, 6, 5, 3}));
    EXPECT_THAT(traced(net, x), ElementsAre("0 conv2d_relu", "2 conv2d", "2 tanh", "4 conv2d"));
    const std::string fused = bits(net(x));
    const auto hook = net[1].hooks().before([](const ModuleBase&, const Tensor*) {});
    EXPECT_THAT(traced(net, x), ElementsAre("0 conv2d", "1 relu", "2 conv2d", "2 tanh", "4 conv2d"));
    EXPECT_EQ(bits(net(x)), fused);
    net[1].hooks().remove(hook);
  }
}

TEST(Sequential, SplitKeepsNamesValuesAndGradients) {
  const auto make = [] {
    return Sequential{Linear(4, 8, {.seed = 1}), Tanh(), Block(8, 5), Dropout(0.5), Linear(8, 2, {.seed = 2})};
  };
  Sequential whole = make();
  std::vector<Sequential> parts = make().split({2, 4});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(keys_of(parts[0]), ElementsAre("0.weight", "0.bias"));
  EXPECT_THAT(keys_of(parts[1]), ElementsAre("2.up.weight", "2.down.weight"));
  EXPECT_THAT(keys_of(parts[2]), ElementsAre("4.weight", "4.bias"));
  const Tensor x = ramp({3, 4});
  const Tensor a = parts[0](x), a_in = a.detach().set_requires_grad();
  const Tensor b = parts[1](a_in), b_in = b.detach().set_requires_grad();
  const Tensor y = parts[2](b_in);
  EXPECT_EQ(bits(y), bits(whole(x)));  // dropout's draws too: they are keyed by the whole's names
  total(y).backward();
  const Tensor gb = b_in.grad();
  b.backward({.seed = &gb});
  const Tensor ga = a_in.grad();
  a.backward({.seed = &ga});
  total(whole(x)).backward();
  std::vector<Tensor> slots;
  for (Sequential& part : parts)
    for (const Tensor& slot : part.parameters()) slots.push_back(slot);
  const auto all = whole.parameters();
  ASSERT_EQ(slots.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(bits(slots[i].grad()), bits(all[i].grad()));
    EXPECT_EQ(slots[i].body()->leaf->name, all[i].body()->leaf->name);
  }
}

TEST(Sequential, SplitChecksItsCuts) {
  const auto split = [](std::vector<std::size_t> cuts) {
    return error_of([&] { (void)Sequential(ReLU(), ReLU(), ReLU()).split(cuts); });
  };
  EXPECT_EQ(split({1, 2}), "");
  for (const auto& cuts : {std::vector<std::size_t>{0}, {3}, {2, 1}, {1, 1}})
    EXPECT_THAT(split(cuts), HasSubstr("cuts must rise strictly between 0 and 3"));
}

// Ends of a sequence that share their weight.
Sequential tied_ends() {
  Dense first(4, 4, 1), last(4, 4, 2);
  last.weight = first.weight.tie();
  return Sequential{std::move(first), Tanh(), Dense(4, 4, 3), std::move(last)};
}

TEST(Sequential, ASplitAtATieGivesTheWholesBitsOverMicroBatches) {
  Sequential whole = tied_ends(), cut = whole.clone();
  (void)whole.parameters();
  std::vector<Sequential> parts = std::move(cut).split({2});
  (void)parts[0].parameters();
  (void)parts[1].parameters();  // does not forget that the weight is tied
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    const Tensor x = ramp({2 + micro_batch, 4});
    total(whole(x)).backward();
    const Tensor a = parts[0](x), a_in = a.detach().set_requires_grad();
    total(parts[1](a_in)).backward();
    const Tensor gradient = a_in.grad();
    a.backward({.seed = &gradient});
  }
  const Tensor left = whole.parameters()[0].grad(), right = parts[0].parameters()[0].grad();
  EXPECT_EQ(bits(left), bits(right));
  // The whole's file loads into either part: a shared weight has one key.
  EXPECT_THAT(keys_of(whole), ElementsAre("0.weight", "2.weight"));
  EXPECT_THAT(keys_of(parts[0]), ElementsAre("0.weight"));
  EXPECT_THAT(keys_of(parts[1]), ElementsAre("2.weight", "0.weight"));
}

TEST(Sequential, OfAPartKeepsTheWholesPath) {
  struct Holder : Module<Holder> {
    void visit(Visitor& v) { v("body", body); }
    [[nodiscard]] Tensor forward(const Tensor& x) const { return body(x); }
    Sequential body{Linear(4, 4, {.seed = 1}), ReLU(), Linear(4, 4, {.seed = 2})};
  } whole;
  (void)whole.parameters();
  std::vector<Sequential> parts = std::move(whole.body).split({2});
  EXPECT_EQ(parts[1].parameters()[0].body()->leaf->name, "body.2.weight");
  EXPECT_THAT(keys_of(parts[1]), ElementsAre("2.weight", "2.bias"));
}

}  // namespace
}  // namespace everyo
