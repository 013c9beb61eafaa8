#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/node.h"
#include "base/counts.h"
#include "everyo/op.h"
#include "everyo/ops.h"
#include "everyo/precision.h"
#include "kernels/gradients.h"
#include "kernels/unary.h"

namespace everyo::inline v1 {
namespace {

struct LossScaleAttrs {
  double scale;
};
Attributes describe(const LossScaleAttrs& a) { return {{"scale", a.scale}}; }

// loss [..] -> loss times scale. Its backward comes before that of all it was made of, and tells the walk that what it
// deposits from here on is scaled.
constexpr Record<LossScaleAttrs> scale_loss_record{
    .name = "scale_loss",
    .policy = CastPolicy::keep32,
    .infer = [](const Inputs& in, const LossScaleAttrs&) -> Specs { return in[0].spec(); },
    .forward =
        [](const Call& c, const LossScaleAttrs& a) {
          const Tensor &x = c.in[0], &y = c.out[0];
          kernels::unary_forward(kernels::Unary::scale, x.dtype(), x.bytes(), y.bytes(), x.size(), {a.scale, 0});
        },
    .backward =
        [](Backward& b, const LossScaleAttrs& a) {
          context().engine.loss_scale = static_cast<float>(a.scale);
          b.give(0, scale(b.grad(), a.scale));
        },
    .cost = [](const Inputs& in, const Specs& out, const LossScaleAttrs&) -> Cost {
      return {.flops = static_cast<double>(in[0].size()),
              .bytes = static_cast<double>(in[0].spec().bytes() + out[0].bytes())};
    },
    .onnx = no("a scaled loss belongs to training"),
    .composed = no("a product that also tells the walk")};

bool made_by_scaling(const Tensor& loss) {
  const GraphNode* made = loss.is_leaf() ? nullptr : loss.body()->node.get();
  return made != nullptr && static_cast<const Node*>(made)->op == &op_of<scale_loss_record>;
}

bool is_scaled(const Tensor& parameter) {
  const GradSlot& slot = parameter.body()->leaf->grad;
  return slot.full && slot.scale != 1;
}

// A half or a float32 may be as large as its dtype holds; 1 / scale stays an ordinary number.
bool is_scale(double scale) { return scale >= 1 && scale <= 0x1p126; }

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), scale_(options.init_scale) {
  const auto require = [](bool holds, const char* name, double value, const char* rule) {
    if (!holds) throw ValueError(fmt::format("[GradScaler] {} is {}; it must be {}", name, value, rule));
  };
  require(is_scale(options.init_scale), "init_scale", options.init_scale, "1 or more, and at most 2^126");
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", options.growth_factor,
          "above 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
          "between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval", static_cast<double>(options.growth_interval), "1 or more");
  require(options.most_skips >= 0, "most_skips", static_cast<double>(options.most_skips), "0 or more");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  if (!options_.enabled) return loss;
  if (made_by_scaling(loss))
    throw StateError("[GradScaler.scale] the loss is scaled already; give the loss itself, or call its own backward()");
  return apply<scale_loss_record>({scale_}, is_half(loss.dtype()) ? cast(loss, float32) : loss);
}

// Divides what is scaled, looking at each gradient once; whether all is finite, on all ranks.
bool GradScaler::divide(std::span<const Tensor> parameters) {
  std::string name;
  double found = 0;
  for (const Tensor& p : parameters) {
    Leaf& leaf = *p.body()->leaf;
    GradSlot& slot = leaf.grad;
    if (!slot.full || slot.value.is_meta()) continue;
    const Tensor& g = slot.value;
    bool finite = false;
    if (slot.scale == 1) {
      finite = kernels::all_finite(g.dtype(), g.bytes(), g.size());
    } else {
      finite = kernels::divide_in_place(g.dtype(), g.bytes(), g.size(), slot.scale);
      g.body()->storage->bump_version();
      slot.scale = 1;
    }
    if (finite || found != 0) continue;
    found = 1;
    name = leaf.name.empty() ? "(unnamed)" : leaf.name;
  }
  if (options_.ranks != nullptr) options_.ranks->max({&found, 1});
  if (found == 0) return true;
  overflowed_ = std::move(name);
  return false;
}

bool GradScaler::unscale(std::span<const Tensor> parameters, const void* optimizer, std::string_view name) {
  Progress& progress = progress_[optimizer];
  const bool again = progress.stage == Stage::unscaled && std::ranges::any_of(parameters, is_scaled);
  if (progress.stage != Stage::ready && !again)
    throw StateError(
        fmt::format("[GradScaler.unscale] the gradients of {} are {} since the last update(); unscale once a "
                    "step, and end each with update()",
                    name, progress.stage == Stage::unscaled ? "unscaled" : "stepped with"));
  progress.finite = !options_.enabled || divide(parameters);
  progress.stage = Stage::unscaled;
  return progress.finite;
}

bool GradScaler::step(std::span<const Tensor> parameters, const void* optimizer, std::string_view name,
                      const std::function<void()>& make_step) {
  Progress& progress = progress_[optimizer];
  if (progress.stage == Stage::stepped)
    throw StateError(
        fmt::format("[GradScaler.step] {} was stepped already since the last update(); call update() once "
                    "after the steps of all optimizers",
                    name));
  if (progress.stage == Stage::ready || std::ranges::any_of(parameters, is_scaled))
    unscale(parameters, optimizer, name);
  const bool finite = progress.finite;
  if (finite) make_step();  // if it throws, all is as before but for gradients that are unscaled now
  ++(finite ? applied_ : skipped_);
  progress_[optimizer].stage = Stage::stepped;
  return finite;
}

bool GradScaler::unscale(const Optimizer& optimizer) {
  return unscale(optimizer.parameters(), &optimizer, optimizer.name());
}

bool GradScaler::step(Optimizer& optimizer) {
  return step(optimizer.parameters(), &optimizer, optimizer.name(), [&optimizer] { optimizer.step(); });
}

void GradScaler::update() {
  // An optimizer that is ready still met an error.
  std::erase_if(progress_, [](const auto& entry) { return entry.second.stage == Stage::ready; });
  if (!options_.enabled || progress_.empty()) return progress_.clear();
  const bool finite = std::ranges::all_of(progress_, [](const auto& entry) { return entry.second.finite; });
  if (!finite) {
    good_ = 0;
    ++skips_in_a_row_;
    return end_update(std::max(1.0, scale_ * options_.backoff_factor));
  }
  skips_in_a_row_ = 0;
  if (++good_ < options_.growth_interval) return end_update(scale_);
  good_ = 0;
  const double grown = scale_ * options_.growth_factor;
  end_update(is_scale(grown) ? grown : scale_);
}

void GradScaler::update(double scale) {
  if (!is_scale(scale))
    throw ValueError(fmt::format("[GradScaler.update] the scale {} must be 1 or more, and at most 2^126", scale));
  good_ = 0;
  progress_.clear();
  scale_ = scale;
}

void GradScaler::end_update(double scale) {
  progress_.clear();
  scale_ = scale;
  if (options_.most_skips == 0 || skips_in_a_row_ < options_.most_skips) return;
  throw StateError(fmt::format(
      "[GradScaler] {} steps in a row were left out, the last at step {} with a scale of {}: the gradient of '{}' is "
      "not finite; look at its loss and inputs, lower the learning rate, or train in bfloat16 or float32",
      skips_in_a_row_, applied_ + skipped_, scale_, overflowed_.empty() ? "(on another rank)" : overflowed_));
}

StateTree GradScaler::state() const {
  StateTree tree;
  tree["scale"] = scale_;
  tree["good_steps"] = good_;
  tree["applied_steps"] = applied_;
  tree["skipped_steps"] = skipped_;
  tree["skips_in_a_row"] = skips_in_a_row_;
  return tree;
}

void GradScaler::load(const StateTree& state) {
  const auto count = [&](const char* name) {
    const auto value = state.get<std::int64_t>(name);
    if (!base::is_count(value))
      throw StateError(fmt::format("[GradScaler] the state's {} is {}; it is a count of steps, from 0 to {}", name,
                                   value, base::most_counted));
    return value;
  };
  const double scale = state.get<double>("scale");
  if (!is_scale(scale))
    throw StateError(fmt::format("[GradScaler] the state's scale is {}; it is 1 or more, and at most 2^126", scale));
  const std::int64_t good = count("good_steps"), applied = count("applied_steps"), skipped = count("skipped_steps"),
                     in_a_row = count("skips_in_a_row");
  scale_ = scale;
  good_ = good;
  applied_ = applied;
  skipped_ = skipped;
  skips_in_a_row_ = in_a_row;
  progress_.clear();
}

}  // namespace everyo::inline v1
