#include "everyo/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optim/slots.h"

namespace everyo_test {
namespace {

using eo::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

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

}  // namespace
}  // namespace everyo_test
