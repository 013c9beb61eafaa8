#include "autograd/node.h"

#include <fmt/format.h>

#include <array>
#include <variant>

#include "common.h"

// A look at the tape, and nodes of a program's own.
namespace everyo::python {
namespace {

// ---- a node written in Python: what backward_fn gives becomes the gradients of its parents ----

struct OwnNode {
  std::string operation;
  nb::tuple parents;
  nb::object backward;
  nb::object attributes;
};
struct OwnAttrs {
  std::shared_ptr<OwnNode> node;
};
Attributes describe(const OwnAttrs& a) { return {{"operation", a.node->operation}}; }

void give_own(Backward& b, std::size_t i, const OwnNode& own, nb::handle value) {
  if (!b.needs(i) || value.is_none()) return;
  const Spec wanted = b.input_spec(i);
  const Tensor gradient = as_tensor(value, wanted.dtype);
  if (gradient.shape() != wanted.shape)
    throw ShapeError(
        fmt::format("[{}] backward_fn gave a gradient of shape {} for parent {} of shape {}; they must be "
                    "equal: see unbroadcast",
                    own.operation, to_string(gradient.shape()), i, to_string(wanted.shape)));
  b.give(i, gradient.copy());
}

void own_backward(Backward& b, const OwnAttrs& a) {
  const nb::gil_scoped_acquire acquire;
  const OwnNode& own = *a.node;
  nb::object given = own.backward(gradient_array(b.grad()));
  if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) given = nb::make_tuple(given);
  if (nb::len(given) != b.inputs())
    throw ShapeError(fmt::format("[{}] backward_fn gave {} gradients for {} parents; one each, None for no gradient",
                                 own.operation, nb::len(given), b.inputs()));
  for (std::size_t i = 0; i < b.inputs(); ++i) give_own(b, i, own, given[i]);
}

constexpr Record<OwnAttrs> own_record{
    .name = "python",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const OwnAttrs&) -> Specs { return in[0].spec(); },
    .forward =
        [](const Call&, const OwnAttrs& a) {
          throw StateError(fmt::format("[{}] was computed in Python", a.node->operation));
        },
    .backward = own_backward,
    .cost = [](const Inputs&, const Specs&, const OwnAttrs&) { return Cost{}; },
    .onnx = no("its forward is Python's"),
    .composed = no("primitive"),
    .specs = true};

// Python objects may be let go by a thread without the interpreter, and after its end.
std::shared_ptr<OwnNode> shared(OwnNode node) {
  return {new OwnNode(std::move(node)), [](OwnNode* p) {
            if (!nb::is_alive()) return;
            const nb::gil_scoped_acquire acquire;
            delete p;
          }};
}

/// What the tape knows of one op, keeping the graph below it alive; or a node that no tensor has yet.
struct PyNode {
  Ref<GraphNode> node;
  std::shared_ptr<OwnNode> own;

  [[nodiscard]] Node& get() const { return static_cast<Node&>(*node); }
};

PyNode looked_at(const Ref<GraphNode>& graph_node) {
  auto& node = static_cast<Node&>(*graph_node);
  return {graph_node, node.op == &op_of<own_record> ? static_cast<const OwnAttrs*>(node.attrs())->node : nullptr};
}

// ---- names and attributes ----

// Python's name of an op: short forms of two-operand ops and casts go by what a program wrote.
std::string operation(const PyNode& self) {
  if (self.own) return self.own->operation;
  Node& node = self.get();
  const std::string_view name = node.op->name;
  if (name == "scale") {
    double factor = 1, offset = 0;
    for (const Attribute& attribute : node.op->describe(node.attrs()))
      (attribute.name == "factor" ? factor : offset) = std::get<double>(attribute.value);
    if (offset == 0 && factor != 1) return "multiply";
    return factor == -1 || offset < 0 ? "subtract" : "add";
  }
  constexpr std::array<std::array<std::string_view, 2>, 4> renamed{
      {{"reciprocal", "divide"},
       {"cast", "to"},
       {"flatten", "reshape"},
       {"bce_with_logits_loss", "binary_cross_entropy_with_logits"}}};
  for (const auto& [ours, python] : renamed)
    if (name == ours) return std::string(python);
  return std::string(name);
}

nb::object python_value(const AttributeValue& value) {
  struct Converted {
    nb::object operator()(std::monostate) const { return nb::none(); }
    nb::object operator()(bool b) const { return nb::cast(b); }
    nb::object operator()(std::int64_t i) const { return nb::cast(i); }
    nb::object operator()(double d) const { return nb::cast(d); }
    nb::object operator()(const std::string& s) const { return nb::cast(s); }
    nb::object operator()(const std::vector<std::int64_t>& list) const {
      const nb::object items = nb::cast(list);
      return nb::steal(PySequence_Tuple(items.ptr()));
    }
  };
  return std::visit(Converted{}, value);
}

// start, stop, step and dropped axes as the key of x[key]: a slice or an index for each axis.
nb::object slice_key(const nb::dict& told) {
  nb::list key;
  for (std::size_t d = 0; d < nb::len(nb::object(told["start"])); ++d) {
    const nb::object start = told["start"][d], stop = told["stop"][d], step = told["step"][d];
    const nb::object axis = nb::cast(d);
    if (PySequence_Contains(told["dropped"].ptr(), axis.ptr()) == 1)
      key.append(start);
    else
      key.append(
          nb::steal(PySlice_New(start.ptr(), nb::cast<std::int64_t>(stop) < 0 ? nullptr : stop.ptr(), step.ptr())));
  }
  return nb::steal(PySequence_Tuple(key.ptr()));
}

nb::object attributes(const PyNode& self) {
  if (self.own) return self.own->attributes;
  nb::dict told;
  Node& node = self.get();
  if (!node.op->describe) return told;
  for (const Attribute& attribute : node.op->describe(node.attrs()))
    told[nb::str(attribute.name.data(), attribute.name.size())] = python_value(attribute.value);
  if (std::string_view(node.op->name) != "slice") return told;
  nb::dict key;
  key["key"] = slice_key(told);
  return key;
}

nb::object parents(const PyNode& self) {
  if (!self.node.get()) return self.own->parents;
  nb::list list;
  for (const Edge& edge : self.get().edges()) {
    if (edge.none())
      list.append(nb::none());
    else if (edge.to_leaf())
      list.append(wrap(Tensor(Ref<Body>::share(edge.leaf()))));
    else
      list.append(nb::cast(looked_at(Ref<GraphNode>::share(edge.node()))));
  }
  return nb::steal(PySequence_Tuple(list.ptr()));
}

// ---- made in Python ----

void construct(PyNode* self, const std::string& name, nb::handle parents, nb::handle backward, nb::handle attributes) {
  if (!PyCallable_Check(backward.ptr()))
    throw nb::type_error("[Node] backward_fn cannot be called; it takes the gradient and gives one for each parent");
  if (!attributes.is_none() && !PyDict_Check(attributes.ptr()))
    throw nb::type_error("[Node] attributes are a dict, or None");
  const nb::tuple list = nb::steal<nb::tuple>(PySequence_Tuple(parents.ptr()));
  if (!list.is_valid()) throw nb::python_error();
  for (const nb::handle parent : list)
    if (!is_tensor(parent)) throw nb::type_error("[Node] parents are the tensors that the result was computed from");
  new (self) PyNode{{},
                    shared({name, list, nb::borrow(backward),
                            attributes.is_none() ? nb::object(nb::dict()) : nb::borrow(attributes)})};
}

// The tensor becomes the result of the node's parents.
void attach(const PyTensor& tensor, const PyNode& node) {
  if (node.node.get())
    throw StateError("[grad_node] the node made another tensor already; make a Node for each", ErrorKind::gradient);
  if (!tensor.value.is_leaf() || tensor.value.requires_grad())
    throw StateError("[grad_node] the tensor is a result or a leaf with a gradient; give a node to a new tensor",
                     ErrorKind::gradient);
  if (!is_floating(tensor.value.dtype()))
    throw StateError(fmt::format("[grad_node] the tensor is {}; gradients need a floating point dtype",
                                 name_of(tensor.value.dtype())),
                     ErrorKind::gradient);
  if (!context().grad) return;
  std::vector<const Tensor*> in;
  InputMask needs = 0;
  for (const nb::handle parent : node.own->parents) {
    in.push_back(&tensor_in(parent));
    needs |= InputMask{in.back()->requires_grad()} << std::min<std::size_t>(in.size() - 1, 31);
  }
  if (needs == 0) return;
  const OwnAttrs attrs{node.own};
  Tensor out = tensor.value;
  record(op_of<own_record>, &attrs, in, {&out, 1}, needs);
}

}  // namespace

void bind_node(nb::module_& m, nb::class_<PyTensor>& tensor) {
  nb::class_<PyNode>(m, "Node",
                     "A recorded op. `tensor.grad_node = Node(..)` gives a tensor computed in any way a gradient.")
      .def(
          "__init__", &construct, "operation"_a, "parents"_a, "backward_fn"_a, "attributes"_a = nb::none(),
          nb::sig("def __init__(self, operation: str, parents: collections.abc.Iterable[Tensor], "
                  "backward_fn: collections.abc.Callable[[Array], typing.Any], "
                  "attributes: typing.Optional[dict[str, typing.Any]] = None) -> None"),
          "backward_fn(gradient of the result) gives the gradient of each parent, [its shape], None for none; with one "
          "parent no tuple is needed. It must not hold the result, which holds it: hold its array.")
      .def_prop_ro("operation", &operation, "Name of the op.")
      .def_prop_ro("parents", &parents, nb::sig("def parents(self) -> tuple[typing.Union[Node, Tensor, None], ...]"),
                   "For each input the op that made it, the leaf it is, or None where no gradient goes.")
      .def_prop_ro("attributes", &attributes, nb::sig("def attributes(self) -> dict[str, typing.Any]"),
                   "What the op was told beside its tensors: axes, exponent, key, ..")
      .def_prop_ro(
          "backward_fn", [](const PyNode& n) { return n.own ? n.own->backward : nb::object(nb::none()); },
          nb::sig("def backward_fn(self) -> typing.Optional[collections.abc.Callable[[Array], typing.Any]]"),
          "The function of a node made in Python; None for the library's own.")
      .def_prop_ro(
          "freed", [](const PyNode& n) { return n.node.get() && n.get().freed; },
          "Has what backward needs been given up?")
      .def(
          "__eq__",
          [](const PyNode& a, nb::handle other) {
            if (!nb::isinstance<PyNode>(other)) return false;
            const PyNode& b = *nb::inst_ptr<PyNode>(other);
            return a.node.get() == b.node.get() && a.own == b.own;
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const PyNode& n) {
             const void* identity = n.node.get() ? static_cast<const void*>(n.node.get()) : n.own.get();
             return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(identity) >> 4);
           })
      .def("__repr__", [](const PyNode& n) { return fmt::format("Node({})", operation(n)); });
  tensor.def_prop_rw(
      "grad_node",
      [](const PyTensor& t) -> nb::object {
        if (!t.value.body()->node) return nb::none();
        return nb::cast(looked_at(t.value.body()->node));
      },
      [](const PyTensor& t, const PyNode& node) { attach(t, node); },
      nb::for_getter(nb::sig("def grad_node(self) -> typing.Optional[Node]")),
      nb::for_setter(nb::sig("def grad_node(self, node: Node, /) -> None")),
      "The op that made the tensor; None for a leaf. A new tensor can be given a Node made in Python; where gradients "
      "are "
      "off or no parent wants one, it stays a leaf.");
}

}  // namespace everyo::python
