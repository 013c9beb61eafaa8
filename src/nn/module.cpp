#include "everyo/nn/module.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <typeinfo>

#include "nn/collect.h"

namespace everyo::inline v1 {

namespace {
void check(const Hooks::Hook& hook) {
  if (!hook) throw ValueError("[hooks] the hook is no function; give one");
}
}  // namespace

std::uint64_t Hooks::before(Hook hook) {
  check(hook);
  before_.emplace_back(next_, std::move(hook));
  return next_++;
}
std::uint64_t Hooks::after(Hook hook) {
  check(hook);
  after_.emplace_back(next_, std::move(hook));
  return next_++;
}
void Hooks::remove(std::uint64_t number) {
  const auto it_is = [number](const auto& entry) { return entry.first == number; };
  std::erase_if(before_, it_is);
  std::erase_if(after_, it_is);
}
void Hooks::run_before(const ModuleBase& module, const Tensor* input) const {
  if (before_.empty()) return;
  const auto hooks = before_;  // a hook may add or remove some
  for (const auto& [number, hook] : hooks) hook(module, input);
}
void Hooks::run_after(const ModuleBase& module, const Tensor* output) const {
  if (after_.empty()) return;
  const auto hooks = after_;
  for (const auto& [number, hook] : hooks) hook(module, output);
}

ModuleBase::~ModuleBase() = default;

ModuleBase::ModuleBase(const ModuleBase& other)
    : path_(other.path_),
      name_begin_(other.name_begin_),
      name_hash_(other.name_hash_),
      path_hash_(other.path_hash_),
      training_(other.training_),
      stamped_(other.stamped_),
      naming_(other.naming_.load()) {}

ModuleBase::ModuleBase(ModuleBase&& other) noexcept
    : path_(std::move(other.path_)),
      name_begin_(std::exchange(other.name_begin_, 0)),
      name_hash_(std::exchange(other.name_hash_, 0)),
      path_hash_(std::exchange(other.path_hash_, 0)),
      hooks_(std::move(other.hooks_)),
      training_(other.training_),
      stamped_(other.stamped_),
      naming_(other.naming_.load()) {
  other.path_.clear();
}

ModuleBase& ModuleBase::operator=(ModuleBase&& other) noexcept {
  training_ = other.training_;
  hooks_ = std::move(other.hooks_);
  naming_.store(Naming::none);  // what came along has the names of another place
  return *this;
}

std::string ModuleBase::type_name() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  const std::string_view whole = status == 0 ? readable.get() : typeid(*this).name();
  const std::string_view plain = whole.substr(0, whole.find('<'));
  const std::size_t colon = plain.rfind(':');
  return std::string(whole.substr(colon == std::string_view::npos ? 0 : colon + 1));
}

void ModuleBase::rename() const {
  Naming expected = Naming::none;
  if (!naming_.compare_exchange_strong(expected, Naming::running)) {
    while (naming_.load(std::memory_order_acquire) == Naming::running) naming_.wait(Naming::running);
    return;
  }
  Visitor names;
  try {
    names.walk(const_cast<ModuleBase&>(*this));  // writes names only, before any call below this one reads them
  } catch (...) {
    naming_.store(Naming::none);
    naming_.notify_all();
    throw;
  }
  naming_.store(Naming::done, std::memory_order_release);
  naming_.notify_all();
}

void ModuleBase::rename_added() {
  if (naming_.load() == Naming::none) return;
  naming_.store(Naming::none);
  rename();
}

void ModuleBase::stand_for(const ModuleBase& whole) {
  path_ = whole.path_;
  name_begin_ = whole.name_begin_;
  name_hash_ = whole.name_hash_;
  path_hash_ = whole.path_hash_;
  training_ = whole.training_;
}

void ModuleBase::train(bool on) {
  Collected all;
  collect(*this, all);
  for (const auto& [path, module] : all.modules)
    if (module->training_ != on) module->training_ = on;
}

std::vector<std::pair<std::string, Tensor>> ModuleBase::named_parameters() {
  Collected all;
  collect(*this, all);
  std::vector<std::pair<std::string, Tensor>> list;
  for (const Collected::Slot& slot : all.slots) {
    list.emplace_back(all.key_of(slot), slot.tensor);
    if (part_of_tie(slot)) continue;
    Leaf& leaf = *slot.tensor.body()->leaf;
    if (std::string name = all.above + slot.paths[0]; leaf.name != name) leaf.name = std::move(name);
    const std::vector<std::uint64_t> uses = slot.owners.size() > 1 ? slot.owners : std::vector<std::uint64_t>{};
    if (leaf.use_paths != uses) leaf.use_paths = uses;
  }
  if (!stamped_) stamped_ = true;
  return list;
}

std::vector<Tensor> ModuleBase::parameters() {
  std::vector<Tensor> slots;
  for (auto& [name, slot] : named_parameters()) slots.push_back(std::move(slot));
  return slots;
}

std::vector<std::pair<std::string, Tensor>> ModuleBase::named_buffers() const {
  Collected all;
  collect(*this, all);
  std::vector<std::pair<std::string, Tensor>> list;
  for (const auto& [path, buffer] : all.buffers) list.emplace_back(path, buffer->tensor());
  return list;
}

std::vector<std::pair<std::string, ModuleBase*>> ModuleBase::named_modules() {
  Collected all;
  collect(*this, all);
  return std::move(all.modules);
}

std::int64_t ModuleBase::num_parameters(bool trainable_only) const {
  Collected all;
  collect(*this, all);
  std::int64_t count = 0;
  for (const Collected::Slot& slot : all.slots)
    if (!trainable_only || slot.tensor.requires_grad()) count += slot.tensor.size();
  return count;
}

void ModuleBase::zero_grad() const {
  Collected all;
  collect(*this, all);
  for (const Collected::Slot& slot : all.slots) slot.tensor.zero_grad();
}

Hooks& ModuleBase::hooks() {
  if (!hooks_) hooks_ = std::make_unique<Hooks>();
  return *hooks_;
}

void refuse_forward(const ModuleBase& module) {
  throw StateError(
      fmt::format("[{}] forward does not map one tensor to one tensor, so it cannot stand in a "
                  "Sequential; call it from a module of your own",
                  module.type_name()));
}
void refuse_clone(const ModuleBase& module) {
  throw StateError(
      fmt::format("[{}] has a member that cannot be copied, so it cannot be cloned; make its members "
                  "copyable",
                  module.type_name()));
}

AnyModule::AnyModule(std::unique_ptr<ModuleBase> module) : module_(std::move(module)) {
  if (!module_) throw ValueError("[AnyModule] the pointer is null; give Module instances");
}

AnyModule::AnyModule(const AnyModule& other) {
  if (!context().clone)
    throw StateError(
        fmt::format("[AnyModule] '{}' {} copied outside clone(); use clone() for a copy, std::move to "
                    "hand over",
                    other.module_->path(), other.module_->type_name()));
  module_ = other.module_->clone_any();
}

}  // namespace everyo::inline v1
