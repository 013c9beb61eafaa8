#include "everyo/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "everyo/memory.h"
#include "support/test_ops.h"

namespace everyo_test {
namespace {
using eo::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Gives a slot a gradient.
void set_grad(const Tensor& p, const std::vector<double>& values) {
  p.zero_grad();
  const Tensor g = Tensor::from<double>(values, p.shape());
  eo::Tensor cast = Tensor::empty(p.spec());
  cast.assign(g);
  p.backward({.seed = &cast});
}
Tensor slot(const std::vector<double>& values, eo::DType dtype = eo::float32) {
  const Tensor t = Tensor::empty({dtype, {static_cast<std::int64_t>(values.size())}});
  t.assign(Tensor::from<double>(values, t.shape()));
  t.set_requires_grad();
  return t;
}
std::vector<double> ramp(std::size_t n, double from, double by) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = from + by * static_cast<double>(i);
  return values;
}
// float32 arithmetic over a few steps: a few units in the last place of the largest term.
constexpr double float32_tolerance = 2e-6;

// The update rules as their sources write them, in float64.
struct Reference {
  std::vector<double> w{}, v{}, m{}, s{}, x{};
  void sgd(const std::vector<double>& grad, const eo::SGDOptions& o) {
    const bool first = v.empty();
    v.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = grad[i] + o.weight_decay * w[i];
      v[i] = first ? g : o.momentum * v[i] + g;
      w[i] -= o.lr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * v[i] : v[i]);
    }
  }
  void adam(const std::vector<double>& grad, const eo::AdamOptions& o, int t) {
    m.resize(w.size());
    s.resize(w.size());
    x.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      double g = grad[i];
      if (o.decoupled)
        w[i] *= 1 - o.lr * o.weight_decay;
      else
        g += o.weight_decay * w[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      s[i] = o.beta2 * s[i] + (1 - o.beta2) * g * g;
      x[i] = std::max(x[i], s[i]);
      const double mean = m[i] / (1 - std::pow(o.beta1, t)),
                   square = (o.amsgrad ? x[i] : s[i]) / (1 - std::pow(o.beta2, t));
      w[i] -= o.lr * mean / (std::sqrt(square) + o.eps);
    }
  }
};

TEST(SGD, FollowsItsRule) {
  for (const eo::SGDOptions& o : {eo::SGDOptions{.lr = 0.1},
                                  {.lr = 0.1, .momentum = 0.9},
                                  {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
                                  {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{33}, std::size_t{1000}}) {
      Reference r{.w = ramp(n, -1, 0.01)};
      const Tensor p = slot(r.w);
      eo::SGD opt({p}, o);
      for (int t = 0; t < 5; ++t) {
        const auto g = ramp(n, 0.5 - 0.2 * t, 0.001);
        r.sgd(g, o);
        set_grad(p, g);
        opt.step();
      }
      const auto got = p.to_vector();
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], r.w[i], 10 * float32_tolerance) << n << " " << i;
    }
  }
}

TEST(Adam, FollowsItsRule) {
  for (const eo::AdamOptions& o : {eo::AdamOptions{.lr = 0.01},
                                   {.lr = 0.01, .weight_decay = 0.1},
                                   {.lr = 0.01, .amsgrad = true},
                                   {.lr = 0.01, .weight_decay = 0.1, .decoupled = true},
                                   {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9}}) {
    for (const eo::DType state : {eo::float32, eo::float64}) {
      eo::AdamOptions with_state = o;
      with_state.state_dtype = state;
      Reference r{.w = ramp(37, -1, 0.05)};
      const Tensor p = slot(r.w);
      eo::Adam opt({p}, with_state);
      for (int t = 1; t <= 6; ++t) {
        const auto g = ramp(37, t == 4 ? 3.013 : 0.513, -0.03);
        r.adam(g, o, t);
        set_grad(p, g);
        opt.step();
      }
      const auto got = p.to_vector();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], r.w[i], 10 * float32_tolerance);
    }
  }
}

TEST(Adam, Float64WeightsAreUpdatedInFloat64) {
  Reference r{.w = ramp(5, -1, 0.3)};
  const Tensor p = slot(r.w, eo::float64);
  eo::Adam opt({p}, {.lr = 0.01, .state_dtype = eo::float64});
  for (int t = 1; t <= 3; ++t) {
    r.adam(ramp(5, 0.1, 0.1), {.lr = 0.01}, t);
    set_grad(p, ramp(5, 0.1, 0.1));
    opt.step();
  }
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(p.to_vector()[i], r.w[i], 1e-15);
}

TEST(AdamW, DecaysTheWeightByDefault) {
  const Tensor p = slot({2});
  eo::AdamW opt({p}, {.lr = 0.1});
  set_grad(p, {0});
  opt.step();
  EXPECT_NEAR(p.item(), 2 * (1 - 0.1 * 0.01), float32_tolerance);
}

// case N01: eps rounded to float16 would be 0, and 0 / 0 NaN.
TEST(Adam, N01ZeroGradientOfAHalfParameterMovesNothing) {
  for (const eo::DType dtype : {eo::float16, eo::bfloat16}) {
    const Tensor p = slot({1, 2, 3}, dtype);
    eo::Adam opt({p}, {.lr = 0.1});
    for (int t = 0; t < 3; ++t) {
      set_grad(p, {0, 0, 0});
      opt.step();
    }
    EXPECT_THAT(p.to_vector(), testing::ElementsAre(1, 2, 3));
  }
}

// case N02: the others that divide by a root of squares.
TEST(Adam, N02ZeroGradientsStayFiniteInEveryVariant) {
  for (const eo::DType dtype : {eo::float16, eo::bfloat16}) {
    const Tensor p = slot({1, 2, 3}, dtype), q = slot({1, 2, 3}, dtype);
    eo::AdamW decoupled({p}, {.lr = 0.1, .weight_decay = 0});
    eo::Adam amsgrad({q}, {.lr = 0.1, .amsgrad = true});
    for (int t = 0; t < 3; ++t) {
      set_grad(p, {0, 0, 0});
      set_grad(q, {0, 0, 0});
      decoupled.step();
      amsgrad.step();
    }
    EXPECT_THAT(p.to_vector(), testing::ElementsAre(1, 2, 3));
    EXPECT_THAT(q.to_vector(), testing::ElementsAre(1, 2, 3));
  }
}

TEST(SGD, AHalfParameterIsRoundedOnce) {
  const Tensor p = slot({1}, eo::float16);
  eo::SGD opt({p}, {.lr = 0.5});
  set_grad(p, {0.25});
  opt.step();
  EXPECT_EQ(p.item(), 0.875);
}

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

TEST(Clip, ByTheGlobalNorm) {
  const Tensor a = slot({0, 0}), b = slot({0});
  set_grad(a, {3, 0});
  set_grad(b, {4});
  const std::vector both{a, b};
  EXPECT_EQ(eo::clip_grad_norm(both, 10), 5);
  EXPECT_EQ(a.grad().to_vector()[0], 3);
  EXPECT_EQ(eo::clip_grad_norm(both, 1), 5);
  EXPECT_FLOAT_EQ(static_cast<float>(b.grad().item()), 0.8f);
  set_grad(b, {std::numeric_limits<double>::infinity()});
  b.body()->leaf->name = "b";
  EXPECT_THAT([&] { eo::clip_grad_norm(both, 1, {.error_if_nonfinite = true}); },
              ThrowsMessage<eo::StateError>(HasSubstr("that of 'b'")));
  EXPECT_EQ(eo::first_nonfinite(both), "b");
  EXPECT_EQ(eo::first_nonfinite(both, true), "");
  EXPECT_THROW(eo::clip_grad_norm(both, 0), eo::ValueError);
}

TEST(Clip, ByValueKeepsNaN) {
  const Tensor a = slot({0, 0, 0});
  set_grad(a, {3, -0.5, std::nan("")});
  eo::clip_grad_value(std::vector{a}, 1);
  EXPECT_EQ(a.grad().to_vector()[0], 1);
  EXPECT_EQ(a.grad().to_vector()[1], -0.5);
  EXPECT_TRUE(std::isnan(a.grad().to_vector()[2]));
}

TEST(Schedule, Values) {
  const auto step = eo::step_schedule(10, 0.5);
  EXPECT_EQ(step(9), 1);
  EXPECT_EQ(step(10), 0.5);
  EXPECT_EQ(step(25), 0.25);
  const auto cosine = eo::cosine_schedule(100, 0.1);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_NEAR(cosine(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine(100), 0.1, 1e-12);
  EXPECT_NEAR(cosine(1000), 0.1, 1e-12);
  const auto warm = eo::warm_up(4, eo::step_schedule(1, 0.5));
  EXPECT_EQ(warm(0), 0.25);
  EXPECT_EQ(warm(3), 1);
  EXPECT_EQ(warm(4), 1);
  EXPECT_EQ(warm(5), 0.5);
  EXPECT_THROW(eo::cosine_schedule(0), eo::ValueError);
}

TEST(Schedule, GoesOnWhereItStopped) {
  const Tensor p = slot({1});
  eo::SGD opt({p}, {.lr = 1});
  eo::Scheduler scheduler(opt, eo::step_schedule(2, 0.5));
  for (int i = 0; i < 3; ++i) scheduler.step();
  EXPECT_EQ(opt.lr(), 0.5);
  eo::SGD again({p}, {.lr = 7});
  eo::Scheduler resumed(again, eo::step_schedule(2, 0.5));
  resumed.load(scheduler.state());
  EXPECT_EQ(again.lr(), 0.5);
  resumed.step();
  EXPECT_EQ(again.lr(), 0.25);
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

TEST(AdamW, GroupsHaveOptionsOfTheirOwn) {
  const Tensor weight = slot({1}), bias = slot({1});
  eo::AdamW opt({{{weight}, {.lr = 0.1, .weight_decay = 0.5}}, {{bias}, {.lr = 0.1, .weight_decay = 0}}});
  set_grad(weight, {0});
  set_grad(bias, {0});
  opt.step();
  EXPECT_NEAR(weight.item(), 0.95, float32_tolerance);
  EXPECT_EQ(bias.item(), 1);
  EXPECT_THAT([&] { (void)opt.lr(2); }, ThrowsMessage<eo::ValueError>(HasSubstr("group 2 of 2")));
}

TEST(Schedule, AStateThatDoesNotFitChangesNothing) {
  eo::SGD opt({slot({1})}, {.lr = 0.5});
  eo::Scheduler schedule(opt, eo::step_schedule(1, 0.1));
  eo::StateTree state = schedule.state();
  state["lr"]["0"] = -1.0;
  EXPECT_THAT([&] { schedule.load(state); }, ThrowsMessage<eo::StateError>(HasSubstr("learning rate -1")));
  EXPECT_EQ(opt.lr(), 0.5);
  EXPECT_EQ(schedule.step_count(), 0);
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
