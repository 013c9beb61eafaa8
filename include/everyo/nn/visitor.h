#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/nn/parameter.h"

namespace everyo::inline v1 {

class AnyModule;

/// Walks a module's members. A module shows them by name, in the order in which they are listed, saved and
/// initialised: `void visit(eo::Visitor& v) { v("stem", stem)("blocks", blocks)("norm", norm); }`.
/// Members are modules, Parameters, Buffers, and vectors ("blocks.0"), arrays, optionals and unique_ptrs of them; empty
/// ones are passed over. Each walk gives the modules it meets their names, writing only what changed.
class EVERYO_API Visitor {
 public:
  Visitor() = default;
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  virtual ~Visitor();

  Visitor& operator()(std::string_view name, Parameter& member);
  Visitor& operator()(std::string_view name, Buffer& member);
  Visitor& operator()(std::string_view name, ModuleBase& member);
  Visitor& operator()(std::string_view name, AnyModule& member);
  template <class T>
  Visitor& operator()(std::string_view name, std::vector<T>& members) {
    return list(name, members);
  }
  template <class T, std::size_t count>
  Visitor& operator()(std::string_view name, std::array<T, count>& members) {
    return list(name, members);
  }
  template <class T>
  Visitor& operator()(std::string_view name, std::optional<T>& member) {
    return member ? (*this)(name, *member) : *this;
  }
  template <class T>
  Visitor& operator()(std::string_view name, std::unique_ptr<T>& member) {
    return member ? (*this)(name, *member) : *this;
  }

  /// Walks `root` and all below it.
  void walk(ModuleBase& root);

 protected:
  virtual void enter(ModuleBase&) {}
  virtual void parameter(Parameter&) {}
  virtual void buffer(Buffer&) {}

  /// Dotted path, from the root of this walk, of what is being visited.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Path hash of the module whose visit() runs, as a call of that module has it in its ModuleScope.
  [[nodiscard]] std::uint64_t owner() const noexcept { return owner_; }

 private:
  /// Appends a name to the path for as long as its visit runs.
  class Step {
   public:
    Step(Visitor& visitor, std::string_view name);
    ~Step() { visitor_.path_.resize(length_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Visitor& visitor_;
    std::size_t length_;
  };
  template <class List>
  Visitor& list(std::string_view name, List& members) {
    const Step step(*this, name);
    for (std::size_t i = 0; i < members.size(); ++i) (*this)(std::to_string(i), members[i]);
    return *this;
  }
  void descend(ModuleBase& module);

  std::string path_, above_;      // above_: path of the root within the whole model, with a dot
  std::size_t module_begin_ = 0;  // where names within the current module begin in path_
  std::uint64_t owner_ = 0;
};

}  // namespace everyo::inline v1
