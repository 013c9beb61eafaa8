#include "autograd/node.h"
#include "base/thread_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/pool.h"

namespace everyo::inline v1 {

SavedValueHooks::~SavedValueHooks() = default;

void Edge::drop() noexcept {
  if (none()) return;
  if (to_leaf())
    leaf()->release();
  else
    node()->release();
  to_ = 0;
}

void Node::drop_made_values() noexcept {
  for (Saved& s : saves())
    if (s.kind == Saved::Kind::rerun || s.kind == Saved::Kind::packed) s.tensor = {};
}

void Node::free_saved() noexcept {
  for (Saved& s : saves()) {
    if (s.kind == Saved::Kind::none) continue;
    s.tensor = {};
    s.node = {};
    s.kind = Saved::Kind::none;
  }
  freed = true;
}

namespace {

// Dropping a node drops its inputs' nodes: waiting ones are a list through the nodes, so depth costs no stack.
void destroy_node(GraphNode* base) noexcept {
  EngineState& engine = thread_context.engine;
  auto* node = static_cast<Node*>(base);
  node->next_dying = static_cast<Node*>(engine.dying);
  engine.dying = node;
  if (engine.destroying) return;
  engine.destroying = true;
  while (engine.dying) {
    auto* n = static_cast<Node*>(engine.dying);
    engine.dying = n->next_dying;
    if (n->op && n->op->destroy_attrs) n->op->destroy_attrs(n->attrs());
    for (Saved& s : n->saves()) s.~Saved();
    for (Tensor& g : n->grads()) g.~Tensor();
    for (Edge& e : n->edges()) e.drop();
    const std::size_t bytes = n->bytes;
    n->~Node();
    pool_give(n, bytes);
  }
  engine.destroying = false;
}

std::uint16_t use_of(const Leaf& leaf, const ModuleScope* scope) {
  for (; scope; scope = scope->parent) {
    const auto at = std::ranges::find(leaf.use_paths, scope->path_hash);
    if (at != leaf.use_paths.end()) return static_cast<std::uint16_t>(at - leaf.use_paths.begin());
  }
  return 0;
}

void connect(const Op& op, Node& node, std::span<const Tensor* const> in) {
  const Context& c = thread_context;
  std::uint64_t clock = c.engine.clock;
  std::uint8_t below = node.below;
  const std::span<Edge> edges = node.edges();
  for (std::size_t i = 0; i < in.size(); ++i) {
    Body* body = in[i]->body();
    if (!body->requires_grad) continue;
    if (auto* from = static_cast<Node*>(body->node.get())) {
      edges[i].set_node(from, body->output, body->dtype, body->shape.elements());
      clock = std::max(clock, from->clock);
      below |= from->below;
      continue;
    }
    const Leaf& leaf = *body->leaf;
    if (leaf.parameter && leaf.name.empty() && c.scope && c.scope->stamped) [[unlikely]]
      throw StateError(fmt::format(
          "[{}] a parameter of shape {} is used but no visit() has shown it, so no optimizer would train it; "
          "name it in its module's visit(), and after adding a module call parameters() again and make the "
          "optimizer anew",
          op.name, to_string(body->shape)));
    edges[i].set_leaf(body, leaf.use_paths.size() < 2 ? std::uint16_t{0} : use_of(leaf, c.scope));
    if (!leaf.ready.empty()) below |= Node::watched;
  }
  node.below = below;
  node.clock = thread_context.engine.clock = clock + 1;
}

Ref<GraphNode> pack_value(SavedValueHooks& hooks, const Tensor& value) {
  auto packed = std::make_unique<PackedValue>();
  packed->hooks = &hooks;
  packed->data = hooks.pack(value);
  packed->spec = value.spec();
  packed->destroy = [](GraphNode* p) noexcept { std::default_delete<PackedValue>{}(static_cast<PackedValue*>(p)); };
  return Ref<GraphNode>::adopt(packed.release());
}

// Can the value be made again from a leaf? Not when it was written after it was made, unless it is the leaf's memory.
bool over_leaf(const Body& body) {
  auto* node = static_cast<Node*>(body.node.get());
  if (!node || !node->op->cheap || node->inputs != 1 || node->edges()[0].none() || !node->edges()[0].to_leaf())
    return false;
  return !body.storage || body.storage->version() == 0 || body.storage.get() == node->edges()[0].leaf()->storage.get();
}

std::uint64_t fingerprint_of(const Body& body) {
  return body.storage->fingerprint(body.offset, Spec{body.dtype, body.shape}.bytes());
}

// What tells later whether a value is still the one that was saved.
void note_state(Saved& saved, const Body& body) {
  saved.version = body.version();
  if (!body.storage || !body.storage->watched()) [[likely]]
    return;
  saved.watched = true;
  saved.fingerprint = fingerprint_of(body);
}
bool unchanged(const Saved& saved, const Body& body) {
  if (saved.watched && body.storage) return fingerprint_of(body) == saved.fingerprint;
  if (body.storage && body.storage->watched()) [[unlikely]]
    body.storage->look();
  return body.version() == saved.version;
}

void save_input(Saved& saved, const Tensor& value) {
  Body* body = value.body();
  if (body->leaf) {
    saved.kind = Saved::Kind::slot;
    note_state(saved, *body);
    saved.tensor = value;
  } else if (over_leaf(*body)) {
    saved.kind = Saved::Kind::rerun;
    note_state(saved, *static_cast<Node*>(body->node.get())->edges()[0].leaf());
    saved.node = body->node;
  } else if (SavedValueHooks* hooks = thread_context.saved; hooks && !value.is_meta()) [[unlikely]] {
    saved.kind = Saved::Kind::packed;
    saved.node = pack_value(*hooks, value.detach());
  } else {
    saved.kind = Saved::Kind::value;
    note_state(saved, *body);
    saved.tensor = value;
  }
}

void save_output(Saved& saved, const Tensor& value) {
  if (SavedValueHooks* hooks = thread_context.saved; hooks && !value.is_meta()) [[unlikely]] {
    saved.kind = Saved::Kind::packed;
    saved.node = pack_value(*hooks, value.detach());
    return;
  }
  saved.kind = Saved::Kind::value;
  note_state(saved, *value.body());
  saved.tensor = value.detach();  // the handle itself would be a cycle
}

}  // namespace

void record(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<Tensor> out,
            InputMask needs) {
  const std::size_t saved = in.size() + out.size();
  const std::size_t bytes = sizeof(Node) + in.size() * sizeof(Edge) + out.size() * sizeof(Tensor) +
                            saved * sizeof(Saved) + (op.specs ? in.size() * sizeof(Spec) : 0) + op.attrs_size;
  auto* node = new (pool_take(bytes)) Node;
  Ref<GraphNode> owner = Ref<GraphNode>::adopt(node);
  node->destroy = destroy_node;
  node->bytes = bytes;
  if (op.opaque) node->below = Node::hides;
  node->inputs = static_cast<std::uint32_t>(in.size());
  node->outputs = static_cast<std::uint32_t>(out.size());
  node->saved = static_cast<std::uint32_t>(saved);
  node->has_specs = op.specs;
  // Everything is constructed before anything can throw.
  const std::span<Edge> edges = node->edges();
  const std::span<Tensor> grads = node->grads();
  const std::span<Saved> saves = node->saves();
  std::uninitialized_value_construct(edges.begin(), edges.end());
  std::uninitialized_value_construct(grads.begin(), grads.end());
  std::uninitialized_value_construct(saves.begin(), saves.end());
  if (op.specs)
    for (std::size_t i = 0; i < in.size(); ++i) new (&node->specs()[i]) Spec(in[i]->spec());
  if (op.copy_attrs)
    op.copy_attrs(node->attrs(), attrs);
  else if (op.attrs_size != 0)
    std::memcpy(node->attrs(), attrs, op.attrs_size);
  node->op = &op;  // from here on there are attributes to destroy

  connect(op, *node, in);
  const InputMask wanted = op.opaque ? for_every_grad : needs;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (((i < 4 ? op.saves.inputs[i] : op.saves.rest_inputs) & wanted) != 0) save_input(saves[i], *in[i]);
  for (std::size_t k = 0; k < out.size(); ++k) {
    if (k < 4 && (op.saves.outputs[k] & wanted) != 0) save_output(saves[in.size() + k], out[k]);
    Body* body = out[k].body();
    if (!is_floating(body->dtype)) continue;
    body->requires_grad = true;
    body->output = static_cast<std::uint16_t>(k);
    body->node = k + 1 < out.size() ? owner : std::move(owner);
  }
}

void trace(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<const Tensor> out) {
  std::shared_ptr<void> kept;
  if (op.copy_attrs) {
    kept = std::shared_ptr<void>(::operator new(op.attrs_size), [destroy = op.destroy_attrs](void* p) {
      destroy(p);
      ::operator delete(p);
    });
    op.copy_attrs(kept.get(), attrs);
  } else {
    const std::size_t size = std::max<std::size_t>(op.attrs_size, 1);
    kept = std::shared_ptr<void>(::operator new(size), [](void* p) { ::operator delete(p); });
    if (op.attrs_size != 0) std::memcpy(kept.get(), attrs, op.attrs_size);
  }
  Tracer::Step step{&op, std::move(kept), {}, {out.begin(), out.end()}, module_path()};
  for (const Tensor* t : in) {
    step.in.push_back(*t);
    step.versions.push_back(t->body()->version());
  }
  for (const Tensor& t : out) step.versions.push_back(t.body()->version());
  thread_context.tracer->steps.push_back(std::move(step));
}

namespace {
[[noreturn]] void refuse(const Node& node, const std::string& what) {
  throw StateError(fmt::format("[{}] {}", node.op->name, what), ErrorKind::gradient);
}
void check_slot(Node& node, const Body& body, const Saved& saved) {
  const char* kind = body.leaf->parameter ? "parameter" : "leaf";
  if (!unchanged(saved, body))
    refuse(node, fmt::format("{} '{}' was changed between forward and backward (version {}, now {}); run backward "
                             "before the change, or forward after it",
                             kind, body.leaf->name, saved.version, body.version()));
  if (!body.storage)
    refuse(node, fmt::format("{} '{}' is released; restore it before backward", kind, body.leaf->name));
}
}  // namespace

const Tensor& unpack(Node& node, Saved& saved) {
  switch (saved.kind) {
    case Saved::Kind::slot: check_slot(node, *saved.tensor.body(), saved); break;
    case Saved::Kind::value:
      if (!unchanged(saved, *saved.tensor.body()))
        refuse(node, fmt::format("a value of shape {} saved for backward was changed in place (version {}, now {}); "
                                 "change a copy()",
                                 to_string(saved.tensor.shape()), saved.version, saved.tensor.body()->version()));
      break;
    case Saved::Kind::rerun: {
      auto& maker = static_cast<Node&>(*saved.node);
      Body* leaf = maker.edges()[0].leaf();
      check_slot(node, *leaf, saved);
      if (saved.tensor.defined()) break;
      const Tensor source(Ref<Body>::share(leaf));
      const Tensor* list[] = {&source};
      const Inputs inputs(list, 1);
      const Scoped<&Context::category> not_kept(MemoryCategory::workspace);
      saved.tensor = Tensor::empty(maker.op->infer(inputs, maker.attrs())[0]);
      maker.op->forward(Call{inputs, {&saved.tensor, 1}}, maker.attrs());
      break;  // dropped with the node's other saved values
    }
    case Saved::Kind::packed: {
      if (saved.tensor.defined()) break;
      auto& packed = static_cast<PackedValue&>(*saved.node);
      const Tensor made = packed.hooks->unpack(packed.data);
      if (!made.defined() || made.is_meta() || made.spec() != packed.spec)
        refuse(node, fmt::format("a saved value of shape {} {} was packed, and something else unpacked; the hooks must "
                                 "give back what they took",
                                 to_string(packed.spec.shape), name_of(packed.spec.dtype)));
      saved.tensor = made;
      break;
    }
    case Saved::Kind::none: refuse(node, "backward asks for a value that the record does not save");
  }
  return saved.tensor;
}

const Tensor& Backward::input(std::size_t i) const { return unpack(node_, node_.saves()[i]); }
const Tensor& Backward::output(std::size_t i) const { return unpack(node_, node_.saves()[node_.inputs + i]); }
bool Backward::needs(std::size_t input) const { return !node_.edges()[input].none(); }
std::size_t Backward::inputs() const { return node_.inputs; }
bool Backward::owns_grad(std::size_t output) const {
  const Body* body = grads_[output].body();
  return body && body->owners() == 1 && body->storage && body->storage->owners() == 1;
}
Spec Backward::input_spec(std::size_t i) const {
  if (node_.has_specs) return node_.specs()[i];
  return input(i).spec();
}
Target Backward::target(std::size_t input) const {
  const Edge& edge = node_.edges()[input];
  if (edge.none() || !edge.to_leaf() || input >= 64) return {};
  Body* body = edge.leaf();
  // One leaf as two inputs: the engine adds up what both give.
  for (const Edge& other : node_.edges())
    if (&other != &edge && !other.none() && other.to_leaf() && other.leaf() == body) return {};
  GradSlot& slot = slot_of(body);
  auto [value, full] = accumulator(slot, *body->leaf, edge.use());
  prepare(value, full, slot.external && &value == &slot.value, {body->dtype, body->shape});
  return {value, full};
}

}  // namespace everyo::inline v1
