#pragma once
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// Where the gradients of one shard go instead of the leaves' own slots, so that several threads can run backward
/// over one model. While Context::gradients points here no ready hook fires.
class EVERYO_API GradientSink {
 public:
  /// The slot of a leaf, made on first use.
  GradSlot& slot(const Tensor& leaf);
  /// Every leaf that got a gradient, in the order of first use.
  [[nodiscard]] std::vector<std::pair<Tensor, Tensor>> gradients() const;

 private:
  std::vector<std::pair<Tensor, std::unique_ptr<GradSlot>>> slots_;
};

/// Runs `before` and `after` the backward of the op that made `tensor`. `before` sees the gradients of its outputs.
/// Throws StateError when no recorded op made it.
using NodeHook = std::function<void(std::span<const Tensor> gradients)>;
EVERYO_API void on_gradient(const Tensor& tensor, NodeHook before, std::function<void()> after = {});

/// Calls `hook` whenever a backward has completed the gradient of `leaf`, while the rest of that backward still runs;
/// a leaf of the graph that no gradient reached fires at the end. Returns the hook's number. Throws StateError when
/// `leaf` is no slot.
EVERYO_API std::uint64_t add_ready_hook(const Tensor& leaf, Leaf::ReadyHook hook);
EVERYO_API void remove_ready_hook(const Tensor& leaf, std::uint64_t number);

/// Runs `hook` once, when the outermost backward running in this thread is complete: every gradient deposited, every
/// ready hook called. Throws StateError outside a backward.
EVERYO_API void at_backward_end(std::function<void()> hook);

/// Turns what the tape saves into something else and back: to another dtype, to a file, to nothing.
/// `Scoped<&Context::saved> scope(&hooks);` The object must outlive every graph recorded inside. Parameters are not
/// packed: they are saved as slots.
class EVERYO_API SavedValueHooks {
 public:
  virtual ~SavedValueHooks();
  virtual std::shared_ptr<void> pack(const Tensor& value) = 0;
  /// Must give back a tensor of the same shape and dtype; called once for each backward over the node.
  virtual Tensor unpack(const std::shared_ptr<void>& packed) = 0;
};

/// Number of bytes that the graph behind `tensor` has saved for backward, slots not counted; each storage once.
EVERYO_API std::size_t saved_bytes(const Tensor& tensor);

}  // namespace everyo::inline v1
