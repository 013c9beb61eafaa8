#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "everyo/error.h"
#include "everyo/ops.h"
#include "everyo/precision.h"
#include "verify/deep_sigmoid.h"
#include "verify/topics.h"

// P9 and P10: the scaler of losses.
namespace everyo::verify_room {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double is(bool holds) { return holds ? 1 : 0; }

/// One weight, and losses whose gradient is the slope given.
struct Line {
  Tensor w = Tensor::ones({1}).set_requires_grad();
  SGD optimizer{std::vector<Tensor>{w}, {.lr = 0.5}};
  [[nodiscard]] Tensor loss(double slope) const { return sum(scale(w, slope)); }
};

void hide_overflow(const Tensor& w) {
  const Tensor gradient = w.grad();
  for (float& g : gradient.write<float>())
    if (!std::isfinite(g)) g = 0;
}

/// Nine steps, of which the third to the seventh overflow.
constexpr std::array slopes{1.0, 1.0, infinity, infinity, infinity, infinity, infinity, 1.0, 1.0};

std::vector<double> scales(bool hidden) {
  Line line;
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  std::vector<double> out;
  for (const double slope : slopes) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(slope));
    if (hidden) hide_overflow(line.w);
    scaler.step(line.optimizer);
    scaler.update();
    out.push_back(scaler.scale());
  }
  return out;
}

std::vector<double> after_steps(bool steps_on_overflow) {
  Line line;
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  for (const double slope : slopes) {
    line.optimizer.zero_grad();
    scaler.backward(line.loss(slope));
    if (!scaler.step(line.optimizer) && steps_on_overflow) line.optimizer.step();
    scaler.update();
  }
  return {line.w.item(), static_cast<double>(scaler.applied_steps()), static_cast<double>(scaler.skipped_steps())};
}

/// Gradients of the network with four hidden layers, from a loss that `backward` scales and passes back.
Tensor shallow_gradients(const std::function<void(const DeepSigmoid&)>& backward) {
  const DeepSigmoid net(shallow);
  backward(net);
  return gradients_of(net.parameters());
}
double differing(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += is(x[i] != y[i]);
  return count;
}

double changed_by_unscaling(bool twice) {
  const Tensor plain = shallow_gradients([](const DeepSigmoid& net) { net.backward(); });
  const Tensor unscaled = shallow_gradients([twice](const DeepSigmoid& net) {
    const SGD optimizer(net.parameters(), {.lr = 0.1});
    GradScaler scaler;
    scaler.backward(net.loss());
    scaler.unscale(optimizer);
    if (!twice) return;
    for (const Tensor& p : net.parameters()) {
      const Tensor gradient = p.grad();
      for (float& g : gradient.write<float>()) g /= static_cast<float>(scaler.scale());
    }
  });
  return differing(plain, unscaled);
}

double changed_by_scaling_first(bool unscaled) {
  const GradScaler scaler;
  const Tensor once = shallow_gradients([&](const DeepSigmoid& net) { scaler.backward(net.loss()); });
  const Tensor by_hand =
      shallow_gradients([&](const DeepSigmoid& net) { (unscaled ? net.loss() : scaler.scale(net.loss())).backward(); });
  return differing(once, by_hand);
}

/// The step that clipping to a norm of 1 leaves of a gradient of 3: of the plain loss, and of the scaled one.
std::vector<double> clipped_steps(bool before_unscaling) {
  const auto step = [&](bool scaled) {
    Line line;
    GradScaler scaler({.enabled = scaled});
    scaler.backward(line.loss(3));
    if (scaled && before_unscaling) {  // what clip_grad_norm would do if it did not refuse
      const Tensor gradient = line.w.grad();
      for (float& g : gradient.write<float>()) g = std::clamp(g, -1.0f, 1.0f);
      scaler.unscale(line.optimizer);
    } else {
      scaler.unscale(line.optimizer);
      clip_grad_norm(line.optimizer.parameters(), 1);
    }
    scaler.step(line.optimizer);
    return 1 - line.w.item();
  };
  return {step(false), step(true)};
}

/// Wrong moves that are refused, 1 each.
std::vector<double> refusals(bool disabled) {
  const auto refused = [&](auto&& move) {
    Line line;
    GradScaler scaler({.enabled = !disabled});
    scaler.backward(line.loss(1));
    try {
      move(line, scaler);
    } catch (const StateError&) {
      return 1.0;
    }
    return 0.0;
  };
  return {refused([](Line& line, GradScaler&) { line.optimizer.step(); }),
          refused([](Line& line, GradScaler&) { clip_grad_norm(line.optimizer.parameters(), 1); }),
          refused([](Line& line, GradScaler&) { line.loss(1).backward(); }),
          refused([](Line& line, GradScaler& scaler) {
            scaler.unscale(line.optimizer);
            scaler.backward(line.loss(1));
          })};
}

/// Scales of a run whose scaler is saved and made again after each step, less those of one that goes on.
double changed_by_resuming(bool loses_counter) {
  const auto run = [&](bool resumes) {
    Line line;
    GradScaler scaler({.init_scale = 8, .growth_interval = 3});
    std::vector<double> out;
    for (int step = 0; step < 9; ++step) {
      line.optimizer.zero_grad();
      scaler.backward(line.loss(step == 4 ? infinity : 1));
      scaler.step(line.optimizer);
      scaler.update();
      out.push_back(scaler.scale());
      if (!resumes) continue;
      StateTree state = scaler.state();
      if (loses_counter) state["good_steps"] = std::int64_t{0};
      scaler = GradScaler({.init_scale = 1, .growth_interval = 3});
      scaler.load(state);
    }
    return out;
  };
  const std::vector<double> whole = run(false), resumed = run(true);
  double count = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) count += is(whole[i] != resumed[i]);
  return count;
}

/// What a disabled scaler does: its scale, whether the loss is the same tensor, the weight after a step.
std::vector<double> disabled_scaler(bool sabotaged) {
  Line line;
  GradScaler scaler({.enabled = sabotaged});
  const Tensor loss = line.loss(1), scaled = scaler.scale(loss);
  scaled.backward();
  scaler.step(line.optimizer);
  scaler.update(4);
  return {scaler.scale(), is(scaled.body() == loss.body()), line.w.item()};
}

template <class F>
auto one(F measure) {
  return [measure](bool sabotaged) { return std::vector<double>{measure(sabotaged)}; };
}

}  // namespace

void add_scaler_checks(Checks& checks, const Figures& figures) {
  const auto add = [&](verify::Check check) { checks.push_back(std::move(check)); };
  add({.requirement = "P9",
       .what = "the scale after each of nine steps from 8 on; it grows after two clean ones, five overflow",
       .figure = figures.at("scaler_scales"),
       .measure = scales,
       .sabotage = "overflows are not seen",
       .note = "it never falls below 1",
       .columns = {"clean", "clean", "inf", "inf", "inf", "inf", "inf", "clean", "clean"}});
  add({.requirement = "P9",
       .what = "after these steps of half the gradient, which is 1 or infinite, from a weight of 1",
       .figure = figures.at("scaler_steps"),
       .measure = after_steps,
       .sabotage = "a step is made although its gradient is infinite",
       .columns = {"weight", "applied", "left out"}});
  add({.requirement = "P9",
       .what = "gradients that differ from the plain loss's after scaling by 65536 and unscaling",
       .figure = figures.at("scaler_unscaled"),
       .measure = one(changed_by_unscaling),
       .sabotage = "unscaled twice"});
  add({.requirement = "P9",
       .what = "the step left of a gradient of 3 by clipping to a norm of 1",
       .figure = figures.at("scaler_clipped"),
       .measure = clipped_steps,
       .sabotage = "clipped before unscaling",
       .note = "clipping refuses gradients that are scaled still",
       .columns = {"plain", "scaled"}});
  add({.requirement = "P9",
       .what = "moves out of turn that are refused: a step and clipping with scaled gradients, adding gradients of "
               "another scale, in both orders",
       .figure = figures.at("scaler_refusals"),
       .measure = refusals,
       .sabotage = "the scaler is disabled",
       .columns = {"step", "clip", "plain onto scaled", "scaled onto plain"}});
  add({.requirement = "P9",
       .what = "scales that differ when the scaler is saved and made again after each of nine steps",
       .figure = figures.at("scaler_resumed"),
       .measure = one(changed_by_resuming),
       .sabotage = "the count of clean steps is lost"});
  add({.requirement = "P9",
       .what = "a disabled scaler: its scale after update(4), whether the loss is the same tensor, the weight stepped",
       .figure = figures.at("scaler_disabled"),
       .measure = disabled_scaler,
       .sabotage = "it is enabled",
       .columns = {"scale", "same", "weight"}});
  add({.requirement = "P10",
       .what = "gradients that differ between backward(loss) of the scaler and scale(loss).backward()",
       .figure = figures.at("scaler_backward"),
       .measure = one(changed_by_scaling_first),
       .sabotage = "scale(loss) leaves the loss as it is"});
}

}  // namespace everyo::verify_room
