#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "everyo/attributes.h"
#include "everyo/onnx_graph.h"
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// What autocast does with an op's operands and output.
enum class CastPolicy : std::uint8_t {
  unset,
  low,      ///< operands cast to the autocast dtype, float32 accumulation, one rounding
  follow,   ///< computes in its input's dtype
  keep32,   ///< float32 output under autocast
  promote,  ///< ordinary promotion of two operands
};

/// What a call costs, from its shapes alone.
struct Cost {
  double flops = 0;
  double bytes = 0;  ///< read and written
};
struct NoAttrs {};

/// Bit i: input i of the op. Inputs from the 32nd on share bit 31.
using InputMask = std::uint32_t;
constexpr InputMask for_grad_of(auto... inputs) { return ((InputMask{1} << inputs) | ... | InputMask{0}); }
inline constexpr InputMask for_every_grad = ~InputMask{0};

/// Which inputs and outputs the tape keeps: input k is kept when an input of inputs[k] needs a gradient; outputs
/// likewise. Inputs from the fifth on follow `rest_inputs`.
struct Saves {
  std::array<InputMask, 4> inputs{};
  std::array<InputMask, 4> outputs{};
  InputMask rest_inputs = 0;
};

/// The inputs of a call, borrowed.
class Inputs {
 public:
  Inputs(const Tensor* const* tensors, std::size_t count) : tensors_(tensors), count_(count) {}
  const Tensor& operator[](std::size_t i) const { return *tensors_[i]; }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  const Tensor* const* tensors_;
  std::size_t count_;
};

/// The outputs an op promises. Up to 4 lie inline, and unused ones stay uninitialised.
class Specs {
 public:
  Specs(const Spec& only) : count_(1) { new (&inline_[0]) Spec(only); }  // NOLINT: an infer returns its Spec
  Specs(std::span<const Spec> specs) : count_(specs.size()) {            // NOLINT
    if (count_ > inline_count) many_ = std::make_unique<Spec[]>(count_);
    for (std::size_t i = 0; i < count_; ++i) new (many_ ? &many_[i] : &inline_[i]) Spec(specs[i]);
  }
  Specs(std::initializer_list<Spec> specs) : Specs(std::span(specs.begin(), specs.size())) {}
  const Spec& operator[](std::size_t i) const { return many_ ? many_[i] : inline_[i]; }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  static constexpr std::size_t inline_count = 4;
  union {
    Spec inline_[inline_count];
  };
  std::size_t count_;
  std::unique_ptr<Spec[]> many_;
};

/// One forward: outputs are allocated already.
struct Call {
  Inputs in;
  std::span<const Tensor> out;
};

/// A leaf's own gradient memory, if a backward may write it straight; `add`: to what is there.
struct Target {
  Tensor memory;
  bool add = false;
  explicit operator bool() const { return memory.defined(); }
};

struct Node;

/// One node's backward: what it saved, the gradients that arrived, and where its own go.
class EVERYO_API Backward {
 public:
  Backward(Node& node, std::span<Tensor> grads, std::span<Tensor> given) : node_(node), grads_(grads), given_(given) {}

  /// Gradient of an output, [its shape]; undefined when none arrived (an op with several outputs).
  [[nodiscard]] const Tensor& grad(std::size_t output = 0) const { return grads_[output]; }
  /// The same, given up, so that it can be changed in place when nobody else holds it.
  [[nodiscard]] Tensor take_grad(std::size_t output = 0) { return std::move(grads_[output]); }
  /// True when nobody else can see the arrived gradient's memory.
  [[nodiscard]] bool owns_grad(std::size_t output = 0) const;
  /// Does input i lead to a leaf that wants a gradient?
  [[nodiscard]] bool needs(std::size_t input) const;
  [[nodiscard]] std::size_t inputs() const;
  /// A saved input or output. Throws StateError when it was changed since, or is not saved.
  [[nodiscard]] const Tensor& input(std::size_t i) const;
  [[nodiscard]] const Tensor& output(std::size_t i = 0) const;
  /// Shape and dtype of input i: of a saved one, or of any in a record with `.specs = true`.
  [[nodiscard]] Spec input_spec(std::size_t i) const;

  /// Gradient of input i, [its shape].
  void give(std::size_t input, Tensor gradient) { given_[input] = std::move(gradient); }
  /// Memory of input i when that is a leaf: write (or add) there, then say wrote(i).
  [[nodiscard]] Target target(std::size_t input) const;
  void wrote(std::size_t input) { wrote_ |= std::uint64_t{1} << input; }

 private:
  friend struct Engine;
  Node& node_;
  std::span<Tensor> grads_, given_;
  std::uint64_t wrote_ = 0;  // target() offers nothing from the 65th input on
};

/// A function a record must give. Whether it was given is set by the constructor: g++ 12 with -fsanitize=undefined
/// does not take the comparison of a lambda's address as a constant.
template <class F>
struct Required {
  F* fn = nullptr;
  bool given = false;
  constexpr Required() = default;
  template <class L>
  requires std::is_convertible_v<L, F*>
  constexpr Required(L lambda) : fn(lambda), given(true) {}  // NOLINT
  template <class... A>
  decltype(auto) operator()(A&&... arguments) const {
    return fn(std::forward<A>(arguments)...);
  }
};
/// A function, or the reason why there is none.
template <class F>
struct OrReason {
  F* fn = nullptr;
  const char* reason = nullptr;
  bool has = false;
  constexpr OrReason() = default;
  template <class L>
  requires std::is_convertible_v<L, F*>
  constexpr OrReason(L lambda) : fn(lambda), has(true) {}  // NOLINT
  constexpr explicit OrReason(const char* why) : reason(why) {}
  [[nodiscard]] constexpr bool given() const { return has || reason != nullptr; }
};
struct Reason {
  const char* text;
  template <class F>
  constexpr operator OrReason<F>() const {  // NOLINT
    return OrReason<F>(text);
  }
};
constexpr Reason no(const char* why) { return {why}; }

/// All that is known of one op. A: a plain struct of attributes, told to readers by `Attributes describe(const A&)` in
/// its namespace. docs/adding_an_op.md walks through one.
template <class A = NoAttrs>
struct Record {
  static_assert(std::is_nothrow_move_constructible_v<A>);
  static_assert(alignof(A) <= 8, "attributes lie inside the node");
  using Attrs = A;
  const char* name = nullptr;
  CastPolicy policy = CastPolicy::unset;
  Saves saves{};
  /// Shapes and dtypes of the outputs; throws for inputs that do not fit.
  Required<Specs(const Inputs&, const A&)> infer{};
  Required<void(const Call&, const A&)> forward{};
  /// Optional: the output is a view of input 0 that starts this many bytes in; nullopt: run forward.
  std::optional<std::size_t> (*view)(const Inputs&, const A&) = nullptr;
  OrReason<void(Backward&, const A&)> backward{};
  Required<Cost(const Inputs&, const Specs&, const A&)> cost{};
  OrReason<onnx::Values(onnx::Graph&, const onnx::Values&, const A&)> onnx{};
  OrReason<Tensor(const Inputs&, const A&)> composed{};  ///< a fused record as plain ops, or no("primitive")
  bool specs = false;   ///< backward asks for shapes of inputs it does not save (broadcasting)
  bool cheap = false;   ///< an output over a leaf is saved as the leaf, and made again for backward
  bool opaque = false;  ///< may reach parameters that are not its inputs: always recorded

  /// The compiler quotes the line that throws.
  [[nodiscard]] constexpr bool complete() const {
    if (!name) throw "name is missing";
    if (policy == CastPolicy::unset) throw "policy is missing";
    if (!infer.given) throw "infer is missing";
    if (!forward.given) throw "forward is missing";
    if (!backward.given()) throw "backward is missing: give one, or no(\"reason\")";
    if (!cost.given) throw "cost is missing";
    if (!onnx.given()) throw "onnx is missing: give one, or no(\"reason\")";
    if (!composed.given()) throw "composed is missing: give one, or no(\"primitive\")";
    return true;
  }
};

/// A record without its attributes' type: what tape, engine, exporter and contract suite hold.
struct Op {
  const char* name;
  CastPolicy policy;
  Saves saves;
  std::size_t attrs_size;
  bool specs, cheap, opaque;
  Specs (*infer)(const Inputs&, const void*);
  void (*forward)(const Call&, const void*);
  std::optional<std::size_t> (*view)(const Inputs&, const void*);
  void (*backward)(Backward&, const void*);
  Cost (*cost)(const Inputs&, const Specs&, const void*);
  onnx::Values (*onnx)(onnx::Graph&, const onnx::Values&, const void*);
  Tensor (*composed)(const Inputs&, const void*);
  Attributes (*describe)(const void*);  // null: the op has none, or no describe
  const char *no_backward, *no_onnx, *not_composed;
  void (*copy_attrs)(void* to, const void* from);  // null: plain bytes
  void (*destroy_attrs)(void*);
};

template <const auto& R>
constexpr Op make_op() {
  using A = typename std::remove_cvref_t<decltype(R)>::Attrs;
  static_assert(R.complete());
  Op op{.name = R.name,
        .policy = R.policy,
        .saves = R.saves,
        .attrs_size = std::is_empty_v<A> ? 0 : sizeof(A),
        .specs = R.specs,
        .cheap = R.cheap,
        .opaque = R.opaque,
        .infer = [](const Inputs& in, const void* a) { return R.infer(in, *static_cast<const A*>(a)); },
        .forward = [](const Call& call, const void* a) { R.forward(call, *static_cast<const A*>(a)); },
        .view = nullptr,
        .backward = nullptr,
        .cost = [](const Inputs& in, const Specs& out,
                   const void* a) { return R.cost(in, out, *static_cast<const A*>(a)); },
        .onnx = nullptr,
        .composed = nullptr,
        .describe = nullptr,
        .no_backward = R.backward.reason,
        .no_onnx = R.onnx.reason,
        .not_composed = R.composed.reason,
        .copy_attrs = nullptr,
        .destroy_attrs = nullptr};
  if constexpr (!std::is_trivially_copyable_v<A>) {
    op.copy_attrs = [](void* to, const void* from) { new (to) A(*static_cast<const A*>(from)); };
    op.destroy_attrs = [](void* a) { static_cast<A*>(a)->~A(); };
  }
  if constexpr (requires(const A& a) {
                  { describe(a) } -> std::same_as<Attributes>;
                })
    op.describe = [](const void* a) { return describe(*static_cast<const A*>(a)); };
  if constexpr (R.view != nullptr)
    op.view = [](const Inputs& in, const void* a) { return R.view(in, *static_cast<const A*>(a)); };
  if constexpr (R.backward.has)
    op.backward = [](Backward& b, const void* a) { R.backward.fn(b, *static_cast<const A*>(a)); };
  if constexpr (R.onnx.has)
    op.onnx = [](onnx::Graph& g, const onnx::Values& in, const void* a) {
      return R.onnx.fn(g, in, *static_cast<const A*>(a));
    };
  if constexpr (R.composed.has)
    op.composed = [](const Inputs& in, const void* a) { return R.composed.fn(in, *static_cast<const A*>(a)); };
  return op;
}
/// The Op of a record, made by the compiler.
template <const auto& R>
inline constexpr Op op_of = make_op<R>();

/// Runs an op: infer, forward, and a node on the tape when an input needs a gradient. `out` has as many places as the
/// op has outputs. Throws what infer and forward throw; StateError when a gradient is asked of an op without one, a
/// parameter is released, or a parameter is used that no visit() shows.
EVERYO_API void apply(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<Tensor> out);
/// The same for an op whose number of outputs depends on its inputs.
EVERYO_API std::vector<Tensor> apply_all(const Op& op, const void* attrs, std::span<const Tensor* const> in);

/// One-output form: `apply<relu_record>({}, x)`.
template <const auto& R, class... T>
requires(std::is_convertible_v<const T&, const Tensor&>&&...) Tensor
    apply(const typename std::remove_cvref_t<decltype(R)>::Attrs& attrs, const T&... in) {
  const std::array<const Tensor*, sizeof...(T)> list{&static_cast<const Tensor&>(in)...};
  Tensor out;
  apply(op_of<R>, &attrs, list, {&out, 1});
  return out;
}
/// For a list of inputs: `apply_list<concatenate_record>({axis}, tensors)`.
template <const auto& R>
Tensor apply_list(const typename std::remove_cvref_t<decltype(R)>::Attrs& attrs, std::span<const Tensor> in) {
  std::array<const Tensor*, 16> few{};
  std::vector<const Tensor*> many(in.size() > few.size() ? in.size() : 0);
  const std::span<const Tensor*> list = many.empty() ? std::span(few).first(in.size()) : std::span(many);
  for (std::size_t i = 0; i < in.size(); ++i) list[i] = &in[i];
  Tensor out;
  apply(op_of<R>, &attrs, list, {&out, 1});
  return out;
}

/// A list of every op call in a scope: for export, the planner and the contract suite.
struct EVERYO_API Tracer {
  struct Step {
    const Op* op;
    std::shared_ptr<void> attrs;
    std::vector<Tensor> in, out;
    std::string module;                     ///< path of the module whose forward called it
    std::vector<std::uint32_t> versions{};  ///< of the inputs, then of the outputs, at the call
  };
  std::vector<Step> steps;
};

}  // namespace everyo::inline v1
