#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "autograd/node.h"
#include "base/thread_context.h"
#include "everyo/events.h"
#include "everyo/logging.h"
#include "tensor/pool_allocator.h"

// Backward walks the graph by falling Lamport clock: a node's clock is greater than its inputs', so whatever adds to
// a node's gradient has run before the node does, sums have one order, and no dependency is counted beforehand.
namespace everyo::inline v1 {

struct Engine {
  struct Item {
    std::uint64_t clock;
    Node* node;
    bool operator<(const Item& other) const { return clock < other.clock; }
  };

  Engine(Node* root, const BackwardOptions& options) : options_(options) {
    EngineState& state = thread_context.engine;
    outermost_ = static_cast<Engine*>(state.walk);
    nested_ = outermost_ != nullptr;
    if (!nested_) {
      outermost_ = this;
      state.walk = this;
      state.loss_scale = 1;
    }
    // A walk inside a walk (recompute) fires no ready hook, and one over hidden parameters cannot know a leaf's last
    // edge: what they touch fires at the end of the outermost walk.
    const bool hides = (root->below & Node::hides) != 0, watched = (root->below & Node::watched) != 0;
    counts_ = watched && !nested_ && !hides && !thread_context.gradients;
    fires_at_end_ = (nested_ || hides) && !thread_context.gradients;
    heap_.reserve(64);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() {
    // Normally nothing is left; after an exception every claimed node is let go with what had arrived.
    if (now_) let_go(*now_);
    for (const Item& item : heap_) let_go(*item.node);
    for (const Tensor& leaf : watched_) leaf.body()->leaf->pending = 0;
    if (nested_) return;
    thread_context.engine.walk = nullptr;
    thread_context.engine.loss_scale = 1;
  }

  void run(Node* root, std::uint16_t output, Tensor seed) {
    if (counts_) count_edges(root);
    claim(*root);
    push(root);
    root->grads()[output] = std::move(seed);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Node* node = heap_.back().node;
      heap_.pop_back();
      visit(*node);
    }
    for (const Tensor& leaf : tied_) sum_uses(slot_of(leaf.body()), leaf.spec());
    finish();
  }

  void at_end(std::function<void()> hook) { end_hooks_.push_back(std::move(hook)); }

 private:
  void visit(Node& node) {
    now_ = &node;  // stays claimed while it runs
    if (node.freed)
      throw StateError(
          fmt::format("[backward] the graph was freed at {}; use retain_graph to walk it twice", node.op->name),
          ErrorKind::gradient);
    if (node.hooks) [[unlikely]]
      for (auto& hook : *node.hooks)
        if (hook.before) hook.before(node.grads());
    PoolVector<Tensor> many;
    std::span<Tensor> given(few_.data(), std::min<std::size_t>(node.inputs, few_.size()));
    if (node.inputs > few_.size()) [[unlikely]] {
      many.resize(node.inputs);
      given = many;
    }
    Backward backward(node, node.grads(), given);
    if (EventSink* events = thread_context.events) [[unlikely]] {
      const EventScope event(events, node.op->name, EventKind::backward);
      node.op->backward(backward, node.attrs());
    } else {
      node.op->backward(backward, node.attrs());
    }
    const std::span<Edge> edges = node.edges();
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (edges[i].none()) continue;
      if (edges[i].to_leaf())
        reach_leaf(edges[i], backward, i, given[i]);
      else if (given[i].defined())
        reach_node(node, edges[i], given[i]);
    }
    for (Tensor& g : given) g = {};
    for (Tensor& g : node.grads()) g = {};
    if (options_.retain_graph)
      node.drop_made_values();
    else
      node.free_saved();
    if (node.hooks) [[unlikely]]
      for (auto& hook : *node.hooks)
        if (hook.after) hook.after();
    node.walk.store(nullptr, std::memory_order_relaxed);
    now_ = nullptr;
  }

  void reach_leaf(const Edge& edge, const Backward& backward, std::size_t i, Tensor& given) {
    Body* body = edge.leaf();
    Leaf& leaf = *body->leaf;
    const bool wrote = i < 64 && (backward.wrote_ >> i & 1) != 0;
    if (given.defined() && is_half(body->dtype) && given.dtype() == float32) [[unlikely]]
      given = narrowed(given, body->dtype);
    if (wrote || given.defined()) {
      GradSlot& slot = slot_of(body);
      if (wrote)
        accumulator(slot, leaf, edge.use()).second = true;
      else
        deposit(slot, leaf, {body->dtype, body->shape}, edge.use(), std::move(given));
      if (leaf.use_paths.size() > 1) add_once(tied_, Tensor(Ref<Body>::share(body)));
    }
    if (leaf.ready.empty() || thread_context.gradients) return;
    if (fires_at_end_)
      add_once(outermost_->late_, Tensor(Ref<Body>::share(body)));
    else if (counts_ && leaf.pending > 0 && --leaf.pending == 0)
      fire(Tensor(Ref<Body>::share(body)));
  }

  void reach_node(const Node& from, const Edge& edge, Tensor& given) {
    Node* to = edge.node();
    Tensor& arrived = to->grads()[edge.output()];
    if (edge.is_widened(*given.body())) {
      if (arrived.defined() || to->hooks || !is_cast_from_float32(*to)) given = narrowed(given, edge.dtype());
    }
    if (!edge.fits(*given.body()) && !edge.is_widened(*given.body())) [[unlikely]]
      throw StateError(
          fmt::format("[{}] backward gave a gradient of shape {} {}, which is not its input's; give() one of "
                      "the input's shape and dtype",
                      from.op->name, to_string(given.shape()), name_of(given.dtype())),
          ErrorKind::gradient);
    if (claim(*to)) push(to);
    if (!arrived.defined()) {
      arrived = std::move(given);
      return;
    }
    if (edge.is_widened(*arrived.body())) arrived = narrowed(arrived, edge.dtype());
    const Body* body = arrived.body();
    if (body->owners() > 1 || body->storage->owners() > 1) arrived = arrived.copy();  // somebody else sees it
    accumulate(arrived, given, true);
  }

  // True the first time; a node belongs to one walk at a time.
  bool claim(Node& node) {
    const void* owner = node.walk.load(std::memory_order_relaxed);
    if (owner == this) return false;
    const void* nobody = nullptr;
    if (owner || !node.walk.compare_exchange_strong(nobody, this, std::memory_order_relaxed))
      throw StateError(
          fmt::format("[backward] node {} is being walked by another backward; run one after the other", node.op->name),
          ErrorKind::gradient);
    return true;
  }
  void push(Node* node) {
    heap_.push_back({node->clock, node});
    std::push_heap(heap_.begin(), heap_.end());
  }
  static void let_go(Node& node) noexcept {
    node.walk.store(nullptr, std::memory_order_relaxed);
    for (Tensor& g : node.grads()) g = {};
  }

  // How often each watched leaf will be reached, so that its hook fires with its last gradient.
  void count_edges(Node* root) {
    // Unique among walks of all threads: the address of the thread's state tells them apart.
    const std::uint64_t mark =
        ++thread_context.engine.walks << 20 ^ reinterpret_cast<std::uintptr_t>(&thread_context.engine) << 4 ^ 1;
    PoolVector<Node*> stack;
    stack.push_back(root);
    root->mark = mark;
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const Edge& edge : node->edges()) {
        if (edge.none()) continue;
        if (edge.to_leaf()) {
          Leaf& leaf = *edge.leaf()->leaf;
          if (!leaf.ready.empty() && ++leaf.pending == 1) watched_.push_back(Tensor(Ref<Body>::share(edge.leaf())));
        } else if ((edge.node()->below & Node::watched) != 0 && edge.node()->mark != mark) {
          edge.node()->mark = mark;
          stack.push_back(edge.node());
        }
      }
    }
  }

  void fire(const Tensor& handle) {
    Leaf& leaf = *handle.body()->leaf;
    if (leaf.use_paths.size() > 1 && leaf.grad.uses.size() > 1) {
      sum_uses(leaf.grad, handle.spec());
      // Once: a hook may write to the sum, or have another thread do so.
      std::erase_if(tied_, [&](const Tensor& each) { return each.body() == handle.body(); });
    }
    const auto hooks = leaf.ready;  // a hook may remove itself
    for (const auto& [number, hook] : hooks) hook(handle);
  }

  void finish() {
    if (!nested_) {
      for (std::size_t i = 0; i < watched_.size(); ++i) {
        const Tensor leaf = watched_[i];
        if (std::exchange(leaf.body()->leaf->pending, 0) > 0) fire(leaf);
      }
      // A hook may run a backward, which adds to both lists.
      std::size_t late = 0, hook = 0;
      while (late < late_.size() || hook < end_hooks_.size()) {
        if (late < late_.size())
          fire(Tensor(late_[late++]));
        else
          std::exchange(end_hooks_[hook++], nullptr)();
      }
    }
    if (options_.at_end) options_.at_end();
  }

  template <class List>
  static void add_once(List& list, const Tensor& leaf) {
    for (const Tensor& each : list)
      if (each.body() == leaf.body()) return;
    list.push_back(leaf);
  }

  const BackwardOptions& options_;
  Engine* outermost_ = nullptr;
  bool nested_ = false, counts_ = false, fires_at_end_ = false;
  Node* now_ = nullptr;
  std::array<Tensor, 8> few_{};  // what the running node gives, unless it has more inputs
  PoolVector<Item> heap_;
  PoolVector<Tensor> watched_, tied_;
  PoolVector<Tensor> late_;  // leaves whose ready hooks wait for the end of the outermost walk
  std::vector<std::function<void()>> end_hooks_;
};

void Tensor::backward() const { backward(BackwardOptions{}); }

void Tensor::backward(const BackwardOptions& options) const {
  if (!requires_grad())
    throw StateError("[backward] the tensor does not require gradients; make it from a tensor that does",
                     ErrorKind::gradient);
  if (!options.seed && size() != 1)
    throw StateError(fmt::format("[backward] shape {} needs an explicit gradient; pass .seed, or reduce to one element",
                                 to_string(shape())),
                     ErrorKind::gradient);
  if (options.seed && options.seed->spec() != spec())
    throw StateError(fmt::format("[backward] seed shape {} {} differs from the tensor's shape {} {}",
                                 to_string(options.seed->shape()), name_of(options.seed->dtype()), to_string(shape()),
                                 name_of(dtype())),
                     ErrorKind::gradient);
  if (is_meta() || (options.seed && options.seed->is_meta()))
    throw StateError("[backward] a meta tensor has no values to differentiate", ErrorKind::gradient);
  if (thread_context.autocast && !std::exchange(thread_context.engine.warned_of_autocast, true)) [[unlikely]]
    log(LogLevel::warning, "[backward] runs within autocast, which does not reach it; end the scope after the loss");
  const NoGrad no_grad;
  const Scoped<&Context::meta> with_values(false);
  const Scoped<&Context::autocast> in_saved_dtypes(false);
  const Scoped<&Context::saved> unpacked(nullptr);
  Tensor seed = options.seed ? *options.seed : full(shape(), 1, dtype());
  if (is_leaf()) {
    GradSlot& slot = slot_of(body_.get());
    deposit(slot, *body_->leaf, spec(), 0, options.seed ? seed.copy() : std::move(seed));
    if (body_->leaf->use_paths.size() > 1) sum_uses(slot, spec());
    if (!thread_context.gradients)
      for (const auto& [number, hook] : std::vector(body_->leaf->ready)) hook(*this);
    if (options.at_end) options.at_end();
    return;
  }
  const Ref<GraphNode> alive = body_->node;  // and through its edges the whole graph
  auto* root = static_cast<Node*>(alive.get());
  Engine engine(root, options);
  engine.run(root, body_->output, std::move(seed));
}

void on_gradient(const Tensor& tensor, NodeHook before, std::function<void()> after) {
  if (tensor.is_leaf())
    throw StateError("[on_gradient] no recorded op made this tensor; use add_ready_hook for a leaf");
  auto& node = static_cast<Node&>(*tensor.body()->node);
  if (!node.hooks) node.hooks = std::make_unique<std::vector<Node::Hook>>();
  node.hooks->push_back({std::move(before), std::move(after)});
}

std::uint64_t add_ready_hook(const Tensor& leaf, Leaf::ReadyHook hook) {
  if (!leaf.defined() || !leaf.body()->leaf)
    throw StateError("[add_ready_hook] the tensor is no slot; it needs set_requires_grad()");
  Leaf& slot = *leaf.body()->leaf;
  slot.ready.emplace_back(slot.next_hook, std::move(hook));
  return slot.next_hook++;
}
void remove_ready_hook(const Tensor& leaf, std::uint64_t number) {
  if (!leaf.defined() || !leaf.body()->leaf) return;
  std::erase_if(leaf.body()->leaf->ready, [number](const auto& entry) { return entry.first == number; });
}

void at_backward_end(std::function<void()> hook) {
  auto* engine = static_cast<Engine*>(thread_context.engine.walk);
  if (!engine) throw StateError("[at_backward_end] no backward is running in this thread; call it from a hook");
  engine->at_end(std::move(hook));
}

std::size_t saved_bytes(const Tensor& tensor) {
  if (tensor.is_leaf()) return 0;
  std::vector<Node*> stack{static_cast<Node*>(tensor.body()->node.get())};
  std::unordered_set<const Node*> seen{stack.back()};
  std::unordered_set<const Storage*> counted;
  std::size_t bytes = 0;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Saved& saved : node->saves()) {
      if (saved.kind != Saved::Kind::value || !saved.tensor.body()->storage) continue;
      const Storage* storage = saved.tensor.body()->storage.get();
      if (counted.insert(storage).second) bytes += storage->bytes();
    }
    for (const Edge& edge : node->edges())
      if (!edge.none() && !edge.to_leaf() && seen.insert(edge.node()).second) stack.push_back(edge.node());
  }
  return bytes;
}

}  // namespace everyo::inline v1
