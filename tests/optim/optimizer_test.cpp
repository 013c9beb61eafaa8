#include "everyo/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "everyo/memory.h"
#include "optim/slots.h"

namespace everyo_test {
namespace {

using eo::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Optimizer, AnElementsBitsDoNotDependOnItsPlace) {
  const auto weights = ramp(300, 0.1, 0.01), grads = ramp(300, -0.3, 0.007);
  const auto run = [&](std::size_t from, std::size_t count) {
    const Tensor p =
        slot({weights.begin() + static_cast<long>(from), weights.begin() + static_cast<long>(from + count)});
    eo::Adam opt({p}, {.lr = 0.01, .weight_decay = 0.01});
    set_grad(p, {grads.begin() + static_cast<long>(from), grads.begin() + static_cast<long>(from + count)});
    opt.step();
    return p.to_vector();
  };
  const auto whole = run(0, 300);
  for (std::size_t from = 0; from < 40; ++from) {
    const auto part = run(from, 1 + from);
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[from + i]);
  }
}

TEST(Optimizer, ThreadsDoNotShow) {
  const auto run = [](int threads) {
    const eo::ThreadLimit limit(threads);
    const Tensor p = slot(ramp(200000, 0, 1e-5));
    eo::Adam opt({p}, {.lr = 0.01});
    set_grad(p, ramp(200000, 1, -1e-5));
    opt.step();
    return p.to_vector();
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(4));
}

TEST(Optimizer, GroupsHaveOptionsOfTheirOwn) {
  const Tensor a = slot({1}), b = slot({1}), idle = slot({1});
  eo::SGD opt({{{a, idle}, {.lr = 0.1}}, {{b}, {.lr = 0.5, .momentum = 0.9}}});
  set_grad(a, {1});
  set_grad(b, {1});
  opt.step();
  EXPECT_FLOAT_EQ(static_cast<float>(a.item()), 0.9f);
  EXPECT_FLOAT_EQ(static_cast<float>(b.item()), 0.5f);
  EXPECT_EQ(idle.item(), 1);  // no gradient
  opt.set_lr(0.2, 0);
  EXPECT_EQ(opt.lr(0), 0.2);
  EXPECT_EQ(opt.lr(1), 0.5);
  EXPECT_EQ(opt.step_count(), 1);
  opt.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizer, SaysWhatIsWrong) {
  const Tensor p = slot({1});
  const auto refuses = [](auto make, const char* words) {
    EXPECT_THAT(make, testing::Throws<eo::Error>(testing::Property(&eo::Error::what, HasSubstr(words))));
  };
  refuses([] { eo::SGD({}, {}); }, "no parameters");
  refuses([] { eo::SGD({Tensor::ones({1})}); }, "not an EveryO tensor");
  refuses([&] { eo::SGD({p, p}); }, "given twice");
  refuses([&] { eo::SGD({p}, {.lr = 0}); }, "positive");
  refuses([&] { eo::SGD({p}, {.lr = std::nan("")}); }, "positive");
  refuses([&] { eo::SGD({p}, {.momentum = 1}); }, "[0, 1)");
  refuses([&] { eo::SGD({p}, {.nesterov = true}); }, "Nesterov");
  refuses([&] { eo::SGD({p}, {.weight_decay = -1}); }, "weight_decay");
  refuses([&] { eo::Adam({p}, {.beta1 = 1}); }, "beta1");
  refuses([&] { eo::Adam({p}, {.beta2 = -0.1}); }, "beta2");
  refuses([&] { eo::Adam({p}, {.eps = 0}); }, "eps");
  refuses([&] { eo::Adam({p}, {.state_dtype = eo::float16}); }, "state_dtype");
}

TEST(Optimizer, RefusesASlotNobodyOwns) {
  const Tensor p = slot({1});
  p.body()->leaf->parameter = true;
  p.body()->leaf->name = "head.weight";
  eo::SGD opt({p});
  set_grad(p, {1});
  EXPECT_THAT([&] { opt.step(); }, ThrowsMessage<eo::StateError>(HasSubstr("'head.weight' (1,) belongs to no module")));
  p.body()->leaf->owners = 1;
  opt.step();
  p.body()->leaf->grad.scale = 1024;
  EXPECT_THAT([&] { opt.step(); }, ThrowsMessage<eo::StateError>(HasSubstr("still multiplied by 1024")));
  EXPECT_THAT([&] { eo::clip_grad_norm(opt.parameters(), 1); }, ThrowsMessage<eo::StateError>(HasSubstr("1024")));
}

TEST(Optimizer, AStepMovesTheKeyOfRandomDrawsOn) {
  const Tensor p = slot({1});
  eo::SGD opt({p});
  const std::uint64_t before = eo::context().step;
  {
    const eo::Scoped<&eo::Context::step> own(7);  // a loop that keys its steps itself
    opt.step();
    EXPECT_EQ(eo::context().step, 8u);
  }
  EXPECT_EQ(eo::context().step, before);
  opt.step();
  EXPECT_EQ(eo::context().step, before + 1);
}

TEST(Optimizer, AStepBetweenForwardAndBackwardIsNoticed) {
  const Tensor p = slot({3});
  eo::SGD opt({p});
  const Tensor loss = square(p);
  set_grad(p, {1});
  opt.step();
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("changed between")));
}

TEST(Optimizer, StateGoesOnWithTheSameBits) {
  for (const eo::DType dtype : {eo::float32, eo::float64}) {
    const auto train = [](eo::Optimizer& opt, const Tensor& p, int from, int to) {
      for (int t = from; t < to; ++t) {
        set_grad(p, ramp(20, 0.1 * t, 0.01));
        opt.step();
      }
    };
    const Tensor through = slot(ramp(20, 0, 0.1));
    eo::Adam whole({through}, {.lr = 0.01, .state_dtype = dtype});
    train(whole, through, 0, 6);

    const Tensor first = slot(ramp(20, 0, 0.1));
    eo::Adam before({first}, {.lr = 0.01, .state_dtype = dtype});
    train(before, first, 0, 3);
    const eo::StateTree state = before.state();
    const Tensor second = first.copy();
    second.set_requires_grad();
    eo::Adam after({second}, {.lr = 0.5});  // the rate and the state's dtype come with the state
    after.load(state);
    EXPECT_EQ(after.step_count(), 3);
    train(after, second, 3, 6);
    EXPECT_EQ(second.to_vector(), through.to_vector());

    eo::SGD other({second});
    EXPECT_THAT([&] { other.load(state); }, ThrowsMessage<eo::StateError>(HasSubstr("it is of Adam")));
    const Tensor longer = slot(ramp(21, 0, 1));
    eo::Adam misfit({longer});
    EXPECT_THAT([&] { misfit.load(state); }, ThrowsMessage<eo::StateError>(HasSubstr("(20,), the parameter (21,)")));
  }
}

TEST(Optimizer, SteadyStepsAllocateNothing) {
  const Tensor p = slot(ramp(64 * 32, 0, 0.1)), q = slot(ramp(32, 0, 0.1));
  eo::Adam opt({p, q});
  set_grad(p, ramp(64 * 32, 0, 0.1));
  set_grad(q, ramp(32, 0, 0.1));
  opt.step();
  const auto before = eo::memory::report().system_allocations;
  for (int i = 0; i < 10; ++i) opt.step();
  EXPECT_EQ(eo::memory::report().system_allocations, before);
}

TEST(Optimizer, AStateThatDoesNotFitChangesNothing) {
  const Tensor p = slot(ramp(4, 0, 1));
  eo::Adam opt({p}, {.lr = 0.01});
  set_grad(p, {1, 1, 1, 1});
  opt.step();
  const eo::StateTree good = opt.state();
  const auto refused = [&](auto&& change, const char* words) {
    eo::StateTree bad = good;
    change(bad);
    EXPECT_THAT([&] { opt.load(bad); }, ThrowsMessage<eo::StateError>(HasSubstr(words)));
    EXPECT_EQ(opt.lr(), 0.01);
    EXPECT_EQ(opt.step_count(), 1);
  };
  refused([](eo::StateTree& s) { s["parameters"]["0"]["steps"] = -1; }, "has made -1 steps");
  refused([](eo::StateTree& s) { s["step_count"] = -1; }, "has made -1 steps");
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();  // one more step would overflow
  refused([](eo::StateTree& s) { s["parameters"]["0"]["steps"] = largest; }, "a count is from 0 to 9007199254740992");
  refused([](eo::StateTree& s) { s["step_count"] = largest; }, "a count is from 0 to 9007199254740992");
  refused([](eo::StateTree& s) { s["groups"]["0"]["lr"] = 0.0; }, "a learning rate is 0");
  refused(
      [](eo::StateTree& s) {
        const std::vector<double> wide(4, 1.0);
        s["parameters"]["0"]["square"] = eo::StateArray::copy_of({eo::float64, {4}}, std::as_bytes(std::span(wide)));
      },
      "its other state");
  refused(
      [](eo::StateTree& s) {
        auto array = s.at("parameters").at("0").get<eo::StateArray>("mean");
        array.shard = eo::ShardInfo{{8}, {4}};
        s["parameters"]["0"]["mean"] = array;
      },
      "is a shard");
  // Kernels take both for of one dtype, so one alone is not filled up beside another.
  const auto without = [](eo::StateTree& s, const std::string& left_out) {
    eo::StateTree kept;
    for (const auto& [key, entry] : s["parameters"]["0"].entries())
      if (key != left_out) kept[key] = entry;
    s["parameters"]["0"] = kept;
  };
  refused([&](eo::StateTree& s) { without(s, "mean"); }, "has square without mean");
  refused([&](eo::StateTree& s) { without(s, "square"); }, "has mean without square");
  refused(
      [&](eo::StateTree& s) {
        s["parameters"]["0"]["largest"] = s["parameters"]["0"]["mean"];
        without(s, "mean");
        without(s, "square");
      },
      "has largest without mean");
  opt.load(good);
}

TEST(Optimizer, OptionsThatFloat32CannotHoldAreRefused) {
  const Tensor p = slot({1});
  EXPECT_THAT([&] { eo::Adam({p}, {.eps = 1e-46}); }, ThrowsMessage<eo::ValueError>(HasSubstr("eps 1e-46")));
  EXPECT_THAT([&] { eo::Adam({p}, {.lr = 1e39}); }, ThrowsMessage<eo::ValueError>(HasSubstr("lr 1e+39")));
  EXPECT_THAT([&] { eo::SGD({p}, {.weight_decay = 1e39}); },
              ThrowsMessage<eo::ValueError>(HasSubstr("weight_decay 1e+39")));
  eo::Adam smallest({p}, {.eps = 1.2e-38});
  set_grad(p, {0});
  smallest.step();
  EXPECT_EQ(p.item(), 1);
  EXPECT_THROW(eo::Scheduler(smallest, nullptr), eo::ValueError);
  EXPECT_THROW(eo::warm_up(2, nullptr), eo::ValueError);
}

TEST(Optimizer, AFirstStepInsideAMetaScopeHasValues) {
  const Tensor p = slot({1});
  eo::Adam adam({p}, {.lr = 0.5});
  set_grad(p, {1});
  {
    const eo::MetaScope meta;
    adam.step();
  }
  EXPECT_NEAR(p.item(), 0.5, float32_tolerance);
}

}  // namespace
}  // namespace everyo_test
