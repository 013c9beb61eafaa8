#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "autograd/node.h"
#include "base/thread_context.h"
#include "kernels/binary.h"
#include "kernels/convert.h"

namespace everyo::inline v1 {

void accumulate(const Tensor& to, const Tensor& from, bool add) {
  if (to.size() == 0) return;
  if (!add) {
    std::memcpy(to.bytes(), from.bytes(), to.spec().bytes());
    return;
  }
  kernels::binary(kernels::Binary::add, to.dtype(), to.size(), to.bytes(), from.bytes(), to.bytes());
}

bool is_cast_from_float32(Node& node) {
  if (node.inputs != 1 || node.outputs != 1 || std::string_view(node.op->name) != "cast") return false;
  const Edge& edge = node.edges()[0];
  return !edge.none() && edge.dtype() == float32;
}

Tensor narrowed(const Tensor& widened, DType dtype) {
  Tensor half = Tensor::empty({dtype, widened.shape()});
  kernels::convert(widened.dtype(), widened.bytes(), dtype, half.bytes(), half.size());
  return half;
}

GradSlot& slot_of(Body* leaf) {
  GradientSink* sink = thread_context.gradients;
  return sink ? sink->slot(Tensor(Ref<Body>::share(leaf))) : leaf->leaf->grad;
}

void prepare(Tensor& value, bool full, bool external, const Spec& spec) {
  const bool seen = value.defined() && !external &&
                    (value.body()->owners() > 1 || (value.body()->storage && value.body()->storage->owners() > 1));
  if (value.defined() && !value.is_meta() && (full || !seen)) return;
  const Scoped<&Context::category> category(MemoryCategory::gradient);
  value = Tensor::empty(spec);
}

namespace {
void begin_scale(GradSlot& slot, const Leaf& leaf, float scale) {
  if (slot.full || std::ranges::any_of(slot.uses, &GradSlot::Use::full))
    throw StateError(
        fmt::format("[backward] the gradient of '{}' is multiplied by {}, what comes now by {}; unscale and "
                    "step, or zero_grad(), before the scale changes",
                    leaf.name, slot.scale, scale),
        ErrorKind::gradient);
  slot.scale = scale;
}
}  // namespace

std::pair<Tensor&, bool&> accumulator(GradSlot& slot, const Leaf& leaf, std::uint16_t use) {
  if (slot.scale != thread_context.engine.loss_scale) [[unlikely]]
    begin_scale(slot, leaf, thread_context.engine.loss_scale);
  if (leaf.use_paths.size() < 2) return {slot.value, slot.full};
  if (slot.uses.size() != leaf.use_paths.size()) slot.uses.resize(leaf.use_paths.size());
  if (slot.full && (!slot.summed || slot.value.body()->version() != slot.summed_version)) {
    // The sum is older than the uses, or was changed from outside (clipped, unscaled): later contributions add to it.
    for (auto& each : slot.uses) each.full = false;
    prepare(slot.uses[0].value, false, false, slot.value.spec());
    accumulate(slot.uses[0].value, slot.value, false);
    slot.uses[0].full = true;
    slot.summed_version = slot.value.body()->version();
    slot.summed = true;
  }
  if (use >= slot.uses.size()) use = 0;  // a place that owned the weight in forward is gone
  return {slot.uses[use].value, slot.uses[use].full};
}

void deposit(GradSlot& slot, const Leaf& leaf, const Spec& spec, std::uint16_t use, Tensor gradient) {
  if (gradient.spec() != spec)
    throw StateError(fmt::format(
        "[backward] gradient {} {} for '{}' {} {}; an op's backward must give its input's spec",
        name_of(gradient.dtype()), to_string(gradient.shape()), leaf.name, name_of(spec.dtype), to_string(spec.shape)));
  auto [value, full] = accumulator(slot, leaf, use);
  const bool external = slot.external && &value == &slot.value;
  const Ref<Storage>& storage = gradient.body()->storage;
  if (!full && !external && storage && gradient.body()->owners() == 1 && storage->owners() == 1 &&
      storage->bytes() == spec.bytes()) {
    storage->retag(MemoryCategory::gradient);
    value = std::move(gradient);  // nobody else sees it: it becomes the slot
  } else {
    prepare(value, full, external, spec);
    accumulate(value, gradient, full);
  }
  full = true;
}

void sum_uses(GradSlot& slot, const Spec& spec) {
  prepare(slot.value, false, slot.external, spec);
  bool first = true;
  for (const auto& use : slot.uses) {
    if (!use.full) continue;
    accumulate(slot.value, use.value, !first);
    first = false;
  }
  slot.full = !first;
  slot.summed_version = slot.value.body()->version();
  slot.summed = true;
}

GradSlot& GradientSink::slot(const Tensor& leaf) {
  for (auto& [key, slot] : slots_)
    if (key.body() == leaf.body()) return *slot;
  return *slots_.emplace_back(leaf, std::make_unique<GradSlot>()).second;
}

std::vector<std::pair<Tensor, Tensor>> GradientSink::gradients() const {
  std::vector<std::pair<Tensor, Tensor>> list;
  for (const auto& [leaf, slot] : slots_)
    if (slot->full) list.emplace_back(leaf, slot->value);
  return list;
}

Tensor Tensor::grad() const {
  if (!known().leaf || !body_->leaf->grad.full) return {};
  return body_->leaf->grad.value.detach();
}

void Tensor::zero_grad() const {
  if (!known().leaf) return;
  GradSlot& slot = body_->leaf->grad;
  slot.full = false;
  slot.summed = false;
  slot.scale = 1;
  for (auto& use : slot.uses) use.full = false;
}

}  // namespace everyo::inline v1
