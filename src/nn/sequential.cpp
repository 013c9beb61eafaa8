#include "everyo/nn/sequential.h"

#include <fmt/format.h>

#include <string>
#include <typeinfo>

namespace everyo::inline v1 {
namespace {

Activation activation_of(const ModuleBase& module) {
  const std::type_info& type = typeid(module);
  if (type == typeid(ReLU)) return Activation::relu;
  if (type == typeid(Sigmoid)) return Activation::sigmoid;
  if (type == typeid(Tanh)) return Activation::tanh;
  if (type == typeid(GELU)) return Activation::gelu;
  if (type == typeid(SiLU)) return Activation::silu;
  return Activation::none;
}

template <class Layer>
Tensor run_fused(const ModuleBase& module, const Tensor& x, Activation activation) {
  return static_cast<const Layer&>(module)(x, activation);
}

}  // namespace

void Sequential::add(AnyModule module) {
  const ModuleBase& base = *module;
  Fused fused = nullptr;
  if (typeid(base) == typeid(Linear)) fused = run_fused<Linear>;
  if (typeid(base) == typeid(BatchNorm1D)) fused = run_fused<BatchNorm1D>;
  if (typeid(base) == typeid(BatchNorm2D)) fused = run_fused<BatchNorm2D>;
  if (typeid(base) == typeid(Conv2D)) fused = run_fused<Conv2D>;
  if (typeid(base) == typeid(LayerNorm)) fused = run_fused<LayerNorm>;
  if (typeid(base) == typeid(GroupNorm)) fused = run_fused<GroupNorm>;
  const Activation activation = activation_of(base);
  items_.push_back({std::move(module), fused, activation});
}

Sequential& Sequential::push_back(AnyModule module) {
  add(std::move(module));
  rename_added();
  return *this;
}

ModuleBase& Sequential::operator[](std::size_t i) const {
  if (i >= items_.size())
    throw ValueError(fmt::format("[Sequential] no module {}; there are {}", i, items_.size()), ErrorKind::index);
  return *items_[i].module;
}

std::vector<Sequential> Sequential::split(std::span<const std::size_t> cuts) && {
  std::size_t last = 0;
  for (const std::size_t cut : cuts) {
    if (cut <= last || cut >= items_.size())
      throw ValueError(fmt::format("[split] cut {} after {} of {} modules; cuts must rise strictly between 0 and {}",
                                   cut, last, items_.size(), items_.size()));
    last = cut;
  }
  (void)parameters();  // the whole's names and places of use, which the parts keep
  std::vector<Sequential> parts(cuts.size() + 1);
  for (std::size_t i = 0, part = 0; i < items_.size(); ++i) {
    if (part < cuts.size() && i == cuts[part]) ++part;
    if (parts[part].items_.empty()) {
      parts[part].first_ = first_ + i;
      parts[part].stand_for(*this);
    }
    parts[part].items_.push_back(std::move(items_[i]));
  }
  items_.clear();
  return parts;
}

void Sequential::visit(Visitor& visitor) {
  for (std::size_t i = 0; i < items_.size(); ++i) visitor(std::to_string(first_ + i), items_[i].module);
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const ModuleBase& module = *items_[i].module;
    if (items_[i].fused && i + 1 < items_.size() && items_[i + 1].activation != Activation::none &&
        !module.active_hooks() && !items_[i + 1].module->active_hooks()) {
      y = items_[i].fused(module, y, items_[i + 1].activation);
      ++i;
    } else {
      y = module.forward_any(y);
    }
  }
  return y;
}

}  // namespace everyo::inline v1
