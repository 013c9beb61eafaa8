#include "everyo/nn/visitor.h"

#include "everyo/nn/module.h"

namespace everyo::inline v1 {

// FNV-1a; 0 is the outermost module's.
std::uint64_t module_name_hash(std::string_view name) noexcept {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash == 0 ? 1 : hash;
}

Visitor::~Visitor() = default;

Visitor::Step::Step(Visitor& visitor, std::string_view name) : visitor_(visitor), length_(visitor.path_.size()) {
  if (name.empty()) throw StateError("[visit] a member needs a name: v(\"stem\", stem)");
  if (length_ != 0) visitor.path_ += '.';
  visitor.path_ += name;
}

Visitor& Visitor::operator()(std::string_view name, Parameter& member) {
  if (!member.tensor().defined()) return *this;
  const Step step(*this, name);
  parameter(member);
  return *this;
}
Visitor& Visitor::operator()(std::string_view name, Buffer& member) {
  if (!member.tensor().defined()) return *this;
  const Step step(*this, name);
  buffer(member);
  return *this;
}
Visitor& Visitor::operator()(std::string_view name, AnyModule& member) { return (*this)(name, *member); }

Visitor& Visitor::operator()(std::string_view name, ModuleBase& member) {
  const Step step(*this, name);
  const std::string_view local = std::string_view(path_).substr(module_begin_);
  const std::size_t name_begin = above_.size() + module_begin_;
  const bool same_path = member.path_.size() == above_.size() + path_.size() && member.path_.starts_with(above_) &&
                         member.path_.ends_with(path_) && member.name_begin_ == name_begin;
  if (!same_path) {
    member.path_ = above_ + path_;
    member.name_begin_ = name_begin;
    member.name_hash_ = module_name_hash(local);
  }
  const std::uint64_t hash = path_hash_below(owner_, member.name_hash_);
  if (member.path_hash_ != hash) member.path_hash_ = hash;
  descend(member);
  return *this;
}

void Visitor::descend(ModuleBase& module) {
  const std::size_t begin = module_begin_;
  const std::uint64_t owner = owner_;
  module_begin_ = path_.empty() ? 0 : path_.size() + 1;
  owner_ = module.path_hash_;
  enter(module);
  module.visit_any(*this);
  module_begin_ = begin;
  owner_ = owner;
  if (module.naming_.load(std::memory_order_relaxed) == ModuleBase::Naming::none)
    module.naming_.store(ModuleBase::Naming::done, std::memory_order_release);
}

void Visitor::walk(ModuleBase& root) {
  above_ = root.path_.empty() ? "" : root.path_ + ".";
  descend(root);
}

}  // namespace everyo::inline v1
