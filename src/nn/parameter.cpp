#include "everyo/nn/parameter.h"

#include <fmt/format.h>

#include <random>
#include <unordered_map>

namespace everyo::inline v1 {

struct CloneMap {
  std::unordered_map<const Body*, Tensor> copies;  // of each slot or buffer met
};

CloneScope::CloneScope() {
  if (context().clone) return;
  map_ = std::make_unique<CloneMap>();
  context().clone = map_.get();
}
CloneScope::~CloneScope() {
  if (map_) context().clone = nullptr;
}

namespace {

std::uint64_t entropy() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

Tensor copy_values(const Tensor& from) {
  const Scoped<&Context::category> category(MemoryCategory::parameter);
  return from.copy();
}

// The copy of `from` in the clone that is being made.
Tensor cloned(const Tensor& from, const char* what) {
  if (!from.defined()) return {};
  CloneMap* map = context().clone;
  const Leaf* leaf = from.body()->leaf.get();
  if (!map)
    throw StateError(fmt::format(
        "[{}] {}{} copied outside clone(); use clone() for a copy, tie() to share, std::move "
        "to hand over",
        what, leaf && !leaf->name.empty() ? fmt::format("'{}' ", leaf->name) : "", to_string(from.shape())));
  Tensor& copy = map->copies[from.body()];
  if (copy.defined()) return copy;
  copy = copy_values(from);
  if (leaf) {
    copy.set_requires_grad();
    Leaf& to = *copy.body()->leaf;
    to.name = leaf->name;
    to.parameter = leaf->parameter;
    to.use_paths = leaf->use_paths;
    to.seed = leaf->seed;
    to.initialise = leaf->initialise;
    copy.set_requires_grad(from.requires_grad());
  }
  return copy;
}

void check_floating(DType dtype) {
  if (!is_floating(dtype))
    throw DTypeError(fmt::format("[Parameter] dtype {} has no gradient; give a floating dtype, or make it a Buffer",
                                 name_of(dtype)));
}

}  // namespace

const std::string& Parameter::name() const noexcept {
  static const std::string none;
  return slot_.defined() ? slot_.body()->leaf->name : none;
}

Parameter::Parameter(const Shape& shape, const Init& init) {
  check_floating(init.dtype);
  const Scoped<&Context::category> category(MemoryCategory::parameter);
  Tensor slot = Tensor::empty(shape, init.dtype);
  slot.set_requires_grad();
  Leaf& leaf = *slot.body()->leaf;
  leaf.parameter = true;
  leaf.seed = init.seed ? *init.seed : entropy();
  leaf.initialise = init.initializer.fill();
  if (!slot.is_meta()) init.initializer(slot, leaf.seed);
  adopt(std::move(slot));
}

Parameter Parameter::of(const Tensor& values) {
  check_floating(values.dtype());
  Tensor slot = copy_values(values);
  slot.set_requires_grad();
  slot.body()->leaf->parameter = true;
  Parameter parameter;
  parameter.adopt(std::move(slot));
  return parameter;
}

Parameter::Parameter(Parameter&& other) noexcept : slot_(std::move(other.slot_)) {}

Parameter& Parameter::operator=(Parameter&& other) noexcept {
  if (this == &other) return *this;
  if (slot_.defined() && other.slot_.defined() && !name().empty()) {
    Leaf& incoming = *other.slot_.body()->leaf;
    if (incoming.owners == 1) incoming.name = name();
  }
  let_go();
  slot_ = std::move(other.slot_);
  return *this;
}

Parameter::Parameter(const Parameter& other) { adopt(cloned(other.slot_, "Parameter")); }
Parameter::~Parameter() { let_go(); }

Parameter Parameter::tie() const {
  if (!slot_.defined()) throw StateError("[tie] the parameter is empty; give it values first");
  Parameter same;
  same.adopt(slot_);
  return same;
}

void Parameter::adopt(Tensor slot) {
  slot_ = std::move(slot);
  if (slot_.defined()) ++slot_.body()->leaf->owners;
}
void Parameter::let_go() noexcept {
  if (slot_.defined()) --slot_.body()->leaf->owners;
  slot_ = {};
}

Buffer::Buffer(const Shape& shape, double value, DType dtype) : initial_(value) {
  const Scoped<&Context::category> category(MemoryCategory::parameter);
  values_ = Tensor::full(shape, value, dtype);
}
Buffer Buffer::of(const Tensor& values) {
  Buffer buffer;
  buffer.values_ = copy_values(values);
  return buffer;
}
Buffer::Buffer(const Buffer& other) : values_(cloned(other.values_, "Buffer")), initial_(other.initial_) {}

}  // namespace everyo::inline v1
