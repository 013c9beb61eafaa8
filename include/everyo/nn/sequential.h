#pragma once
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "everyo/nn/images.h"
#include "everyo/nn/layers.h"
#include "everyo/nn/norms.h"

namespace everyo::inline v1 {

/// Modules one after the other, of any types, by value: `Sequential{Linear(4, 8), ReLU(), Block(8, 5)}`. Their names
/// are "0", "1", ... A Linear, a Conv2D or a norm runs as one op with the activation right behind it, to the same
/// bits, unless either has hooks. A single Sequential in the braces is moved, not nested: use push_back for that.
class EVERYO_API Sequential : public Module<Sequential> {
 public:
  Sequential() = default;
  /// Takes the modules over; a named one needs std::move.
  template <class... M>
  requires(sizeof...(M) > 0) && (std::derived_from<M, ModuleBase> && ...) &&
      (sizeof...(M) > 1 || (!std::same_as<M, Sequential> && ...)) explicit Sequential(M&&... modules) {
    items_.reserve(sizeof...(M));
    (add(AnyModule(std::forward<M>(modules))), ...);
  }
  Sequential& push_back(AnyModule module);

  [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
  /// Throws ValueError (index) outside 0..size-1.
  ModuleBase& operator[](std::size_t i) const;

  /// Parts [0, cuts[0]), [cuts[0], cuts[1]), ... whose names, and so keys and random draws, are still the whole's.
  /// Throws ValueError unless cuts rise strictly between 0 and size().
  [[nodiscard]] std::vector<Sequential> split(std::span<const std::size_t> cuts) &&;
  [[nodiscard]] std::vector<Sequential> split(std::initializer_list<std::size_t> cuts) && {
    return std::move(*this).split(std::span(cuts.begin(), cuts.size()));
  }

  void visit(Visitor& visitor);
  [[nodiscard]] Tensor forward(const Tensor& x) const;

 private:
  using Fused = Tensor (*)(const ModuleBase& module, const Tensor& x, Activation activation);
  struct Item {
    AnyModule module;
    Fused fused;            // runs the module with an activation; null if it takes none
    Activation activation;  // what the module is, if one of these
  };
  void add(AnyModule module);

  std::vector<Item> items_;
  std::size_t first_ = 0;  // the first item's number in the whole that this is a part of
};

}  // namespace everyo::inline v1
