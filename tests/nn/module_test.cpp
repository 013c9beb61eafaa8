#include "everyo/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/autograd.h"
#include "everyo/memory.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_nn;  // NOLINT: the tests' own modules

static_assert(std::is_nothrow_move_constructible_v<Block> && !std::is_copy_assignable_v<Block>);
static_assert(!std::is_constructible_v<AnyModule, Dense&>, "a named module needs std::move");

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

TEST(Module, NamesFollowVisitAndTiedParametersAreListedOnce) {
  Net net;
  EXPECT_THAT(names_of(net.named_parameters()),
              ElementsAre("stem.weight", "blocks.0.up.weight", "blocks.0.down.weight", "blocks.1.up.weight",
                          "blocks.1.down.weight", "blocks.2.up.weight", "blocks.2.down.weight"));
  for (const auto& [name, slot] : net.named_parameters()) EXPECT_EQ(slot.body()->leaf->name, name);
  EXPECT_EQ(net.parameters().size(), 7u);
  EXPECT_EQ(net.num_parameters(), 16 + 3 * 64);
  EXPECT_EQ(net.blocks[1].up.path(), "blocks.1.up");
  EXPECT_EQ(net.blocks[1].up.name(), "up");
  EXPECT_EQ(net.blocks[1].name(), "blocks.1");
  EXPECT_THAT(names_of(net.named_buffers()), ElementsAre("blocks.0.watch.mean"));
  EXPECT_EQ(net.type_name(), "Net");
}

TEST(Module, NamesOfAPartAreTheWholesOnceTheWholeWasWalked) {
  Net net;
  (void)net.parameters();
  EXPECT_THAT(names_of(net.blocks[1].named_parameters()), ElementsAre("up.weight", "down.weight"));
  EXPECT_EQ(net.blocks[1].up.weight.name(), "blocks.1.up.weight");
  EXPECT_THAT(names_of(net.blocks[1].state_dict()), ElementsAre("up.weight", "down.weight"));
}

TEST(Module, ModulesComeParentsFirst) {
  Net net;
  std::vector<std::string> paths;
  for (const auto& [path, module] : net.named_modules()) paths.push_back(path);
  EXPECT_THAT(paths, ElementsAre("", "stem", "blocks.0", "blocks.0.up", "blocks.0.down", "blocks.0.watch", "blocks.1",
                                 "blocks.1.up", "blocks.1.down", "blocks.2", "blocks.2.up", "blocks.2.down", "head"));
}

struct Pointers : Module<Pointers> {
  Pointers() {
    owned.push_back(std::make_unique<Dense>(2, 2, 1));
    any.emplace_back(Dense(2, 2, 2));
  }
  void visit(Visitor& v) { v("owned", owned)("any", any)("none", none)("pair", pair)("scales", scales); }
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& y) const { return product((*owned[0])(x), y); }
  std::vector<std::unique_ptr<Dense>> owned;
  std::vector<AnyModule> any;
  std::unique_ptr<Dense> none;
  std::array<Dense, 2> pair{Dense(2, 2, 3), Dense(2, 2, 4)};
  std::vector<Parameter> scales;
};

TEST(Module, ChildrenOfEveryKind) {
  Pointers p;
  p.scales.emplace_back(Shape{1}, Init{});
  EXPECT_THAT(names_of(p.named_parameters()),
              ElementsAre("owned.0.weight", "any.0.weight", "pair.0.weight", "pair.1.weight", "scales.0"));
}

TEST(Module, WhatCannotBeDoneThroughTheBaseSaysSo) {
  Pointers p;
  ModuleBase& base = p;
  EXPECT_THAT(error_of([&] {
                (void)base.forward_any(ramp({1, 2}));
              }),
              HasSubstr("[Pointers] forward does not map one tensor to one tensor"));
  EXPECT_THAT(error_of([&] { (void)base.clone_any(); }), HasSubstr("[Pointers] has a member that cannot be copied"));
}

struct TwoOfAName : Module<TwoOfAName> {
  void visit(Visitor& v) { v("a", a)("a", b); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return b(a(x)); }
  Dense a{2, 2, 1}, b{2, 2, 2};
};
TEST(Module, OneNameForTwoMembersIsRefused) {
  TwoOfAName net;
  EXPECT_THAT(error_of([&] { (void)net.parameters(); }), HasSubstr("'a.weight' names two members"));
}

TEST(Module, MovedModulesKeepSlotsAndValues) {
  Net net;
  const std::vector<Tensor> slots = net.parameters();
  const Tensor x = ramp({3, 4});
  net.eval();
  const std::string before = bits(net(x));
  Net moved = std::move(net);
  EXPECT_EQ(bits(moved(x)), before);
  const std::vector<Tensor> after = moved.parameters();
  ASSERT_EQ(after.size(), slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(after[i].body(), slots[i].body());
}

TEST(Module, CopyingOutsideCloneIsAnError) {
  const Net net;
  EXPECT_THAT(error_of([&] { const Net copy(net); }), HasSubstr("copied outside clone(); use clone() for a copy"));
  EXPECT_THAT(error_of([&] { const auto stem = net.stem; }), HasSubstr("(4, 4) copied outside clone()"));
  const AnyModule any(Dense(2, 2, 1));
  EXPECT_THAT(error_of([&] { const AnyModule copy(any); }), HasSubstr("Dense copied outside clone()"));
}

TEST(Module, CloneIsDeepKeepsTiesModesAndNames) {
  Net net;
  (void)net.parameters();
  net.blocks[1].eval();
  std::size_t calls = 0;
  net.hooks().before([&](const ModuleBase&, const Tensor*) { ++calls; });
  Net copy = net.clone();
  EXPECT_EQ(copy.head.weight.tensor().body(), copy.stem.weight.tensor().body());
  EXPECT_NE(copy.head.weight.tensor().body(), net.head.weight.tensor().body());
  EXPECT_FALSE(copy.blocks[1].training());
  EXPECT_TRUE(copy.blocks[0].training());
  EXPECT_EQ(copy.stem.weight.name(), "stem.weight");
  const Tensor x = ramp({3, 4});
  EXPECT_EQ(bits(copy(x)), bits(net(x)));
  EXPECT_EQ(calls, 1u);  // hooks are not copied
  copy.stem.weight.tensor().write<float>()[0] += 1;
  EXPECT_NE(bits(copy(x)), bits(net(x)));
  const std::unique_ptr<ModuleBase> erased = net.clone_any();
  EXPECT_EQ(bits(erased->forward_any(x)), bits(net(x)));
  EXPECT_NE(erased->parameters()[0].body(), net.parameters()[0].body());
}

struct Forgets : Module<Forgets> {
  void visit(Visitor& v) { v("a", a); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return b(a(x)); }
  Dense a{4, 4, 1}, b{4, 4, 2};
};
TEST(Module, AParameterThatVisitForgotIsAnErrorOnceParametersHasRun) {
  const Forgets free;
  EXPECT_EQ(error_of([&] { (void)free(ramp({1, 4})); }), "");
  Forgets net;
  (void)net.parameters();
  EXPECT_THAT(error_of([&] {
                (void)net(ramp({1, 4}));
              }),
              HasSubstr("[product] a parameter of shape (4, 4) is used but no visit() has shown it"));
}

TEST(Module, AReplacedModuleTakesThePlacesNameAndLeavesAnOrphan) {
  Net net;
  const Tensor old = net.parameters()[1];
  net.blocks[0].up = Dense(4, 8, 77);
  EXPECT_EQ(net.blocks[0].up.path(), "blocks.0.up");
  EXPECT_EQ(net.blocks[0].up.weight.name(), "blocks.0.up.weight");
  EXPECT_EQ(old.body()->leaf->owners, 0);  // an optimizer that holds it refuses to step
  total(net(ramp({2, 4}))).backward();     // and forward still knows the parameter's name
  EXPECT_TRUE(net.blocks[0].up.weight.grad().defined());
}

TEST(Module, TrainAndEvalReachAllBelow) {
  Net net;
  net.eval();
  for (const auto& [path, module] : net.named_modules()) EXPECT_FALSE(module->training()) << path;
  net.train();
  for (const auto& [path, module] : net.named_modules()) EXPECT_TRUE(module->training()) << path;
}

TEST(Module, ZeroGradAndFrozenParameters) {
  Net net;
  total(net(ramp({2, 4}))).backward();
  for (const Tensor& slot : net.parameters()) EXPECT_TRUE(slot.grad().defined());
  net.zero_grad();
  for (const Tensor& slot : net.parameters()) EXPECT_FALSE(slot.grad().defined());
  net.stem.weight.tensor().set_requires_grad(false);
  EXPECT_EQ(net.num_parameters(true), 3 * 64);
  EXPECT_EQ(net.num_parameters(), 16 + 3 * 64);
}

TEST(Module, HooksRunAroundForwardWithItsPath) {
  Net net;
  (void)net.parameters();
  std::vector<std::string> seen;
  Dense& up = net.blocks[2].up;
  const auto first = up.hooks().before([&](const ModuleBase& module, const Tensor* x) {
    seen.push_back("before " + module.type_name() + " " + module_path() + " " + to_string(x->shape()));
  });
  up.hooks().after([&](const ModuleBase&, const Tensor* y) { seen.push_back("after " + to_string(y->shape())); });
  (void)net(ramp({2, 4}));
  EXPECT_THAT(seen, ElementsAre("before Dense blocks.2.up (2, 4)", "after (2, 8)"));
  up.hooks().remove(first);
  (void)net(ramp({2, 4}));
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(module_path(), "");
}

TEST(Module, PathsAreKnownAtTheFirstCall) {
  // Random draws are keyed by path, so two layers must differ before anybody has asked for parameters.
  const Net net;
  Tracer tracer;
  {
    const Scoped<&Context::tracer> on(&tracer);
    (void)net(ramp({1, 4}));
  }
  ASSERT_EQ(tracer.steps.size(), 8u);
  EXPECT_EQ(tracer.steps[0].module, "stem");
  EXPECT_EQ(tracer.steps[3].module, "blocks.1.up");
  EXPECT_EQ(tracer.steps[7].module, "head");
}

// Sharding's stage 3 in small: each unit's weight is there only while the unit runs, forward or backward.
TEST(Module, HooksGatherAndReleaseParameters) {
  const auto make = [] {
    std::vector<Dense> units;
    for (std::uint64_t i = 0; i < 3; ++i) units.emplace_back(4, 4, i);
    return units;
  };
  const auto loss_of = [](const std::vector<Dense>& units) {
    Tensor y = ramp({2, 4});
    for (const Dense& unit : units) y = unit(y);
    return total(y);
  };
  const std::vector<Dense> plain = make();
  loss_of(plain).backward();

  std::vector<Dense> sharded = make();
  int resident = 0, most = 0;
  for (Dense& unit : sharded) {
    const Tensor slot = unit.weight;
    const Ref<Storage> values = slot.body()->storage;
    release_storage(slot);
    const auto gather = [slot, values, &resident, &most] {
      restore_storage(slot, values);
      most = std::max(most, ++resident);
    };
    const auto release = [slot, &resident] {
      release_storage(slot);
      --resident;
    };
    unit.hooks().before([gather](const ModuleBase&, const Tensor*) { gather(); });
    unit.hooks().after([gather, release](const ModuleBase&, const Tensor* y) {
      on_gradient(
          *y, [gather](std::span<const Tensor>) { gather(); }, release);
      release();
    });
  }
  EXPECT_EQ(resident, 0);
  loss_of(sharded).backward();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(resident, 0);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(bits(sharded[i].weight.grad()), bits(plain[i].weight.grad()));
}

// A gradient as the sum over the weight's uses: each use from a model in which it has a weight of its own.
TEST(Module, ATiedWeightsGradientIsTheSumOverItsPlacesInVisitOrder) {
  Net tied;
  (void)tied.parameters();
  EXPECT_EQ(tied.stem.weight.tensor().body()->leaf->use_paths.size(), 2u);
  Net untied = tied.clone();
  untied.head.weight = Parameter::of(tied.head.weight);
  (void)untied.parameters();
  EXPECT_TRUE(untied.head.weight.tensor().body()->leaf->use_paths.empty());
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    const Tensor x = ramp({2 + micro_batch, 4});
    total(tied(x)).backward();
    total(untied(x)).backward();
  }
  const Tensor stem = untied.stem.weight.grad(), head = untied.head.weight.grad(), sum = tied.stem.weight.grad();
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_EQ(sum.data<float>()[i], stem.data<float>()[i] + head.data<float>()[i]);  // the same bits
}

TEST(Module, AHookMayRemoveItselfAndAddOthers) {
  Dense layer(4, 4, 1);
  int once = 0, other = 0;
  std::uint64_t number = 0;
  number = layer.hooks().before([&](const ModuleBase&, const Tensor*) {
    ++once;
    layer.hooks().remove(number);
    for (int i = 0; i < 20; ++i) layer.hooks().before([&](const ModuleBase&, const Tensor*) { ++other; });
  });
  layer.hooks().before([&](const ModuleBase&, const Tensor*) { ++other; });
  (void)layer(ramp({1, 4}));
  EXPECT_EQ(once, 1);
  EXPECT_EQ(other, 1);
  (void)layer(ramp({1, 4}));
  EXPECT_EQ(once, 1);
  EXPECT_EQ(other, 22);
  EXPECT_THROW(layer.hooks().before(nullptr), ValueError);
}

}  // namespace
}  // namespace everyo
