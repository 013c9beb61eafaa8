#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "everyo/context.h"
#include "everyo/nn/visitor.h"

namespace everyo::inline v1 {

/// What runs around a module's forward, in the order of adding. Not copied by clone().
class EVERYO_API Hooks {
 public:
  /// `tensor`: the first tensor argument before forward, the result after it; null when that is no tensor.
  using Hook = std::function<void(const ModuleBase& module, const Tensor* tensor)>;
  /// Returns the hook's number.
  std::uint64_t before(Hook hook);
  std::uint64_t after(Hook hook);
  void remove(std::uint64_t number);
  [[nodiscard]] bool empty() const noexcept { return before_.empty() && after_.empty(); }

  void run_before(const ModuleBase& module, const Tensor* input) const;
  void run_after(const ModuleBase& module, const Tensor* output) const;

 private:
  using List = std::vector<std::pair<std::uint64_t, Hook>>;
  List before_, after_;
  std::uint64_t next_ = 1;
};

using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
  bool strict = true;  ///< false: missing and unexpected keys are reported instead of thrown
};
struct LoadReport {
  std::vector<std::string> missing, unexpected;
};

/// What a module is to those that take any: Trainer, the levers, files.
class EVERYO_API ModuleBase {
 public:
  virtual ~ModuleBase();
  virtual void visit_any(Visitor& visitor) = 0;
  /// Calls the module. Throws StateError when its forward does not map one tensor to one tensor.
  virtual Tensor forward_any(const Tensor& x) const = 0;
  /// A deep copy. Throws StateError when the type cannot be copied.
  [[nodiscard]] virtual std::unique_ptr<ModuleBase> clone_any() const = 0;
  /// The type's name without namespaces.
  [[nodiscard]] virtual std::string type_name() const;

  [[nodiscard]] bool training() const noexcept { return training_; }
  /// Of this module and all below it.
  void train(bool on = true);
  void eval() { train(false); }

  /// The slots, each once, in visit order. Stamps every parameter's name and, on tied ones, the places of use; from
  /// then on a parameter that no visit() shows is an error in forward. Throws StateError when two members have one
  /// name.
  std::vector<Tensor> parameters();
  std::vector<std::pair<std::string, Tensor>> named_parameters();
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// This module, as "", and all below it; parents come first.
  std::vector<std::pair<std::string, ModuleBase*>> named_modules();
  /// Elements of all parameters, tied ones once.
  [[nodiscard]] std::int64_t num_parameters(bool trainable_only = false) const;
  void zero_grad() const;

  /// Parameters in visit order, tied ones once, then buffers; handles to the values themselves, not copies.
  [[nodiscard]] StateDict state_dict() const;
  /// Writes values into parameters and buffers, converting to their dtypes; meta ones get memory. Nothing is written
  /// unless all fits. Throws StateError (serialization): "Missing keys", "Unexpected keys", "expects shape", "Buffer",
  /// and two names of one parameter with "different values".
  LoadReport load_state_dict(std::span<const std::pair<std::string, Tensor>> state, const LoadOptions& options = {});

  /// A table of the modules, their types and parameters; with an input's shape also the shape each gives, from a run
  /// on meta tensors. Not for use while another thread calls the module.
  std::string summary();
  std::string summary(const Shape& input_shape, DType dtype = float32);

  Hooks& hooks();
  /// Null when there are none.
  [[nodiscard]] const Hooks* active_hooks() const noexcept {
    return hooks_ && !hooks_->empty() ? hooks_.get() : nullptr;
  }
  /// Path within the whole model, as the last walk over it stamped; "" for the outermost module.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Name within its parent ("stem", "blocks.0").
  [[nodiscard]] std::string_view name() const noexcept { return std::string_view(path_).substr(name_begin_); }

 protected:
  ModuleBase() = default;
  ModuleBase(const ModuleBase& other);
  ModuleBase(ModuleBase&& other) noexcept;
  /// The name stays with the place.
  ModuleBase& operator=(ModuleBase&& other) noexcept;

  /// To be called after a member was added: gives it its name, if this module has been walked already.
  void rename_added();
  /// Takes the place, and so the names and random draws, of a module that this one is a part of.
  void stand_for(const ModuleBase& whole);

 private:
  friend class Visitor;
  friend class CallScope;
  enum class Naming : std::uint8_t { none, running, done };

  void rename() const;  // a walk for names alone, by the first of the threads that ask

  std::string path_;
  std::size_t name_begin_ = 0;
  std::uint64_t name_hash_ = 0, path_hash_ = 0;
  std::unique_ptr<Hooks> hooks_;
  bool training_ = true;
  bool stamped_ = false;
  mutable std::atomic<Naming> naming_{Naming::none};
};

/// Hash of a module's name within its parent; never 0.
EVERYO_API std::uint64_t module_name_hash(std::string_view name) noexcept;
/// Hash of a module's path from its parent's and its own name's hash; 0 for an outermost module.
constexpr std::uint64_t path_hash_below(std::uint64_t parent, std::uint64_t name_hash) noexcept {
  if (name_hash == 0) return parent;
  const std::uint64_t mixed = parent * 0x9E3779B97F4A7C15u ^ name_hash;
  return mixed ^ mixed >> 29;
}

/// Puts a module on the Context's stack of calls.
class [[nodiscard]] EVERYO_API CallScope {
 public:
  explicit CallScope(const ModuleBase& module)
      : context_(context()), scope_{&module, context_.scope, module.name(), 0, module.stamped_} {
    if (const ModuleScope* parent = scope_.parent) {
      scope_.path_hash = path_hash_below(parent->path_hash, module.name_hash_);
      scope_.stamped = parent->stamped;
    } else {
      if (module.naming_.load(std::memory_order_acquire) != ModuleBase::Naming::done) [[unlikely]]
        module.rename();
      scope_.name = module.path();
      scope_.path_hash = module.path_hash_;
    }
    context_.scope = &scope_;
  }
  ~CallScope() { context_.scope = scope_.parent; }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  Context& context_;
  ModuleScope scope_;
};

/// Base of a module: `struct Net : eo::Module<Net>` with members, `void visit(eo::Visitor&)` naming them, and a const
/// `forward`. A module moves; clone() copies it, ties and all; any other copy throws at its first Parameter.
template <class Self>
class Module : public ModuleBase {
 public:
  /// A deep copy in which ties stay ties; hooks are not copied.
  [[nodiscard]] Self clone() const {
    const CloneScope scope;
    return Self(self());
  }
  /// Calls forward, inside a scope of the module's name, between its hooks. Default arguments of forward are not seen
  /// through it.
  template <class... A>
  auto operator()(const A&... arguments) const {
    const CallScope scope(*this);
    const Hooks* hooks = active_hooks();
    if (!hooks) [[likely]]
      return self().forward(arguments...);
    const Tensor* first = nullptr;
    ((first = first ? first : tensor_in(arguments)), ...);
    hooks->run_before(*this, first);
    auto result = self().forward(arguments...);
    hooks->run_after(*this, tensor_in(result));
    return result;
  }

  void visit_any(Visitor& visitor) override {
    if constexpr (requires(Self & module) { module.visit(visitor); }) static_cast<Self&>(*this).visit(visitor);
  }
  Tensor forward_any(const Tensor& x) const override {
    if constexpr (requires(const Self& module) {
                    { module.forward(x) } -> std::convertible_to<Tensor>;
                  })
      return (*this)(x);
    else
      refuse_forward(*this);
  }
  [[nodiscard]] std::unique_ptr<ModuleBase> clone_any() const override {
    if constexpr (std::is_copy_constructible_v<Self>) {
      const CloneScope scope;
      return std::make_unique<Self>(self());
    } else {
      refuse_clone(*this);
    }
  }

 private:
  [[nodiscard]] const Self& self() const noexcept { return static_cast<const Self&>(*this); }
  template <class T>
  static const Tensor* tensor_in(const T& value) noexcept {
    if constexpr (std::is_convertible_v<const T&, const Tensor&>)
      return &static_cast<const Tensor&>(value);
    else
      return nullptr;
  }
};

[[noreturn]] EVERYO_API void refuse_forward(const ModuleBase& module);
[[noreturn]] EVERYO_API void refuse_clone(const ModuleBase& module);

/// Any module, held by value.
class EVERYO_API AnyModule {
 public:
  /// Takes a module over; a named one needs std::move.
  template <class M>  // NOLINTNEXTLINE: `push_back(Linear(4, 8))`
  requires std::derived_from<M, ModuleBase> &&(!std::is_lvalue_reference_v<M>)AnyModule(M&& module)
      : module_(std::make_unique<M>(std::move(module))) {}
  /// Throws ValueError for null.
  explicit AnyModule(std::unique_ptr<ModuleBase> module);
  AnyModule(AnyModule&&) noexcept = default;
  AnyModule& operator=(AnyModule&&) noexcept = default;
  /// Throws StateError outside clone().
  AnyModule(const AnyModule& other);
  AnyModule& operator=(const AnyModule&) = delete;

  ModuleBase& operator*() const noexcept { return *module_; }
  ModuleBase* operator->() const noexcept { return module_.get(); }

 private:
  std::unique_ptr<ModuleBase> module_;
};

/// Gives every meta parameter and buffer of a model values, each parameter from `seed` and its path, so that all who do
/// it agree. Others stay as they are. Throws StateError for a meta parameter without an initializer.
EVERYO_API void materialise(ModuleBase& module, std::uint64_t seed);

}  // namespace everyo::inline v1
