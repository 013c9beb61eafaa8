#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/op.h"

// The tape. A node lies in one block with its edges, arrived gradients, saved values, input specs and attributes.
namespace everyo::inline v1 {

/// Where the gradient of one input goes: a node's output, or a leaf.
class Edge {
 public:
  Edge() = default;
  [[nodiscard]] bool none() const { return to_ == 0; }
  [[nodiscard]] bool to_leaf() const { return (to_ & 1) != 0; }
  [[nodiscard]] Body* leaf() const { return reinterpret_cast<Body*>(to_ & ~std::uintptr_t{1}); }
  [[nodiscard]] Node* node() const { return reinterpret_cast<Node*>(to_); }
  [[nodiscard]] std::uint16_t output() const { return output_; }
  [[nodiscard]] std::uint16_t use() const { return output_; }
  /// Of the input that the gradient is of.
  [[nodiscard]] DType dtype() const { return to_leaf() ? leaf()->dtype : dtype_; }
  /// Is that a gradient of what the node made? In elements modulo 2^32, and dtype.
  [[nodiscard]] bool fits(const Body& gradient) const {
    return gradient.dtype == dtype_ && static_cast<std::uint32_t>(gradient.shape.elements()) == elements_;
  }
  /// Is it one of a half that came in float32?
  [[nodiscard]] bool is_widened(const Body& gradient) const {
    return gradient.dtype == float32 && is_half(dtype_) &&
           static_cast<std::uint32_t>(gradient.shape.elements()) == elements_;
  }
  void set_leaf(Body* body, std::uint16_t use) {
    body->retain();
    to_ = reinterpret_cast<std::uintptr_t>(body) | 1;
    output_ = use;
  }
  void set_node(Node* node, std::uint16_t output, DType dtype, std::int64_t elements);
  void drop() noexcept;

 private:
  std::uintptr_t to_ = 0;     // counted; the low bit says leaf
  std::uint16_t output_ = 0;  // of a node; of a leaf: which use of a tied weight
  DType dtype_ = float32;     // of a node's output, with the number of its elements
  std::uint32_t elements_ = 0;
};

struct Saved {
  enum class Kind : std::uint8_t { none, value, slot, rerun, packed };
  Kind kind = Kind::none;
  bool watched = false;  // writes are not counted now: the fingerprint tells, not the version
  std::uint32_t version = 0;
  std::uint64_t fingerprint = 0;
  Tensor tensor;
  Ref<GraphNode> node;  // rerun: the op to run again; packed: what the hooks made
};

struct PackedValue : GraphNode {
  SavedValueHooks* hooks = nullptr;
  Spec spec;
  std::shared_ptr<void> data;
};

struct Node : GraphNode {
  const Op* op = nullptr;
  std::uint64_t clock = 0;
  std::size_t bytes = 0;
  std::uint32_t inputs = 0, outputs = 0, saved = 0;
  bool has_specs = false;
  bool freed = false;
  // What lies below: together in one byte, which a consumer takes over with one read.
  static constexpr std::uint8_t watched = 1;  // some leaf has a ready hook
  static constexpr std::uint8_t hides = 2;    // some node may reach parameters that are not its inputs
  std::uint8_t below = 0;
  std::uint64_t mark = 0;
  std::atomic<const void*> walk{nullptr};  // the backward that owns the arrived gradients now
  Node* next_dying = nullptr;
  struct Hook {
    NodeHook before;
    std::function<void()> after;
  };
  std::unique_ptr<std::vector<Hook>> hooks;

  std::span<Edge> edges() { return {reinterpret_cast<Edge*>(this + 1), inputs}; }
  std::span<Tensor> grads() { return {reinterpret_cast<Tensor*>(edges().data() + inputs), outputs}; }
  std::span<Saved> saves() { return {reinterpret_cast<Saved*>(grads().data() + outputs), saved}; }
  std::span<Spec> specs() { return {reinterpret_cast<Spec*>(saves().data() + saved), has_specs ? inputs : 0}; }
  void* attrs() { return specs().data() + specs().size(); }

  /// Gives up what backward needs; edges stay.
  void free_saved() noexcept;
  /// Gives up values made for one backward: run again, or unpacked.
  void drop_made_values() noexcept;
};
static_assert(sizeof(Node) % 8 == 0 && sizeof(Edge) % 8 == 0 && sizeof(Saved) % 8 == 0 && sizeof(Spec) % 8 == 0);

inline void Edge::set_node(Node* node, std::uint16_t output, DType dtype, std::int64_t elements) {
  node->retain();
  to_ = reinterpret_cast<std::uintptr_t>(node);
  output_ = output;
  dtype_ = dtype;
  elements_ = static_cast<std::uint32_t>(elements);
}

/// Puts a call on the tape; `needs`: which inputs want a gradient. Exported for the Python module.
EVERYO_API void record(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<Tensor> out,
                       InputMask needs);
/// Appends a call to the context's tracer.
void trace(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<const Tensor> out);

/// The value as forward saw it. Throws StateError when it was changed since, or is not saved.
const Tensor& unpack(Node& node, Saved& saved);

// ---- gradients of halves in float32 (accumulate.cpp) ----
// An op may give the gradient of a half as float32 with values of that half, which spares a cast from float32 behind it
// a pass over memory. Nobody else sees it so: it is narrowed, exactly, for any other node, for hooks and for sums.

/// Does the node only cast its float32 input to a half?
bool is_cast_from_float32(Node& node);
/// The same values as `dtype`.
Tensor narrowed(const Tensor& widened, DType dtype);

// ---- gradients into slots (accumulate.cpp) ----

/// to = from, or to += from; halves add in float32 and round once. Same shape and dtype.
void accumulate(const Tensor& to, const Tensor& from, bool add);
/// The leaf's slot, or the context's sink's.
GradSlot& slot_of(Body* leaf);
/// Memory for a gradient of `spec` that nobody else sees, to be overwritten unless `full`.
void prepare(Tensor& value, bool full, bool external, const Spec& spec);
/// Adds `gradient` to a slot's accumulator of one use.
void deposit(GradSlot& slot, const Leaf& leaf, const Spec& spec, std::uint16_t use, Tensor gradient);
/// The accumulator a use writes to: the slot itself, or its own place when the weight is tied.
std::pair<Tensor&, bool&> accumulator(GradSlot& slot, const Leaf& leaf, std::uint16_t use);
/// A tied weight's gradient: its uses summed in the order of the places that own it.
void sum_uses(GradSlot& slot, const Spec& spec);

}  // namespace everyo::inline v1
