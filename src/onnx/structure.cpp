#include "onnx/structure.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "onnx/messages.h"
#include "onnx/operator_structure.h"
#include "onnx/structure_place.h"
#include "onnx/tensor_structure.h"

namespace everyo::onnx_export {
namespace {

using onnx_file::AttributeProto;
using onnx_file::FunctionProto;
using onnx_file::GraphProto;
using onnx_file::ModelProto;
using onnx_file::NodeProto;
using onnx_file::TypeProto;
using onnx_file::ValueInfoProto;

/// Versions of the format that are read: 3, of 2017, is the first that says which operators it means.
constexpr std::int64_t first_ir_version = 3;
/// Nodes once every call of a function is replaced by the function's own; more are an attack.
constexpr std::uint64_t most_nodes = 10'000'000;

std::string_view domain_of(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }
/// How messages call it.
std::string named(std::string_view domain) {
  return domain.empty() ? "the standard operators" : fmt::format("'{}'", base::printable(domain));
}

/// Names that can be used where a node stands: those of its graph so far, and of the graphs around it.
class Scope {
 public:
  explicit Scope(const Scope* outer = nullptr) : outer_(outer) {}
  [[nodiscard]] bool has(std::string_view name) const {
    return names_.contains(name) || (outer_ != nullptr && outer_->has(name));
  }
  [[nodiscard]] bool has_itself(std::string_view name) const { return names_.contains(name); }
  void define(std::string_view name, const Place& place) {
    if (name.empty()) place.fail("it has no name");
    if (!names_.insert(name).second) place.fail(fmt::format("the name '{}' is defined before", base::printable(name)));
  }

 private:
  std::unordered_set<std::string_view> names_;
  const Scope* outer_;
};

using FunctionKey = std::pair<std::string_view, std::string_view>;  // domain, name

/// What the nodes of a graph or of a function's body share.
struct Section {
  std::map<std::string_view, std::int64_t> opsets;  // by domain
  bool of_function = false;                         // attributes may refer to the function's
  std::uint64_t nodes = 0;                          // with those of graphs inside nodes
  std::map<FunctionKey, std::uint64_t> calls;       // how often it calls each of the model's functions
};

class Checker {
 public:
  Checker(const ModelProto& model, std::string_view what) : model_(model), top_{nullptr, {}, what} {}

  std::vector<ExternalData> check() {
    if (!model_.has_ir_version()) top_.fail("it has no version of the format; it is cut short, or no ONNX file");
    if (model_.ir_version() < first_ir_version) {
      top_.fail(
          fmt::format("its version of the format is {}; {} and above are read", model_.ir_version(), first_ir_version));
    }
    if (!model_.has_graph()) top_.fail("it has no graph; it is cut short, or no model");
    Section section;
    import_opsets(model_.opset_import(), section, top_);
    for (const FunctionProto& function : model_.functions()) functions_.try_emplace(key_of(function));
    check_functions();
    const Place place = top_.inner("graph", model_.graph().name());
    check_interface(place);
    Scope scope;
    check_graph(model_.graph(), scope, section, top_);
    check_expansion(section);
    return std::move(external_);
  }

 private:
  template <class Imports>
  void import_opsets(const Imports& imports, Section& section, const Place& place) const {
    if (imports.empty()) place.fail("it does not say which operators' version it uses; it is cut short, or no model");
    for (const auto& import : imports) {
      const std::string_view domain = domain_of(import.domain());
      if (import.version() < 1)
        place.fail(fmt::format("the version of {} is {}; the first is 1", named(domain), import.version()));
      if (!section.opsets.emplace(domain, import.version()).second) {
        place.fail(fmt::format("the version of {} is given twice", named(domain)));
      }
    }
  }

  // The graph of the model itself: what it takes and gives has types.
  void check_interface(const Place& place) const {
    const GraphProto& graph = model_.graph();
    if (graph.output().empty()) place.fail("it has no outputs");
    std::unordered_set<std::string_view> outputs;
    for (const ValueInfoProto& input : graph.input()) {
      if (!input.has_type()) top_.inner("input", input.name()).fail("it has no type");
    }
    for (const ValueInfoProto& output : graph.output()) {
      const Place at = top_.inner("output", output.name());
      if (!output.has_type()) at.fail("it has no type");
      if (!outputs.insert(output.name()).second) at.fail("there are two of this name");
    }
  }

  void check_graph(const GraphProto& graph, Scope& scope, Section& section, const Place& place) {
    for (const ValueInfoProto& input : graph.input()) {
      const Place at = place.inner("input", input.name());
      scope.define(input.name(), at);
      check_type(input, at);
    }
    std::unordered_set<std::string_view> initialized;
    const auto initialize = [&](const std::string& name, const Place& at) {
      if (!initialized.insert(name).second) at.fail("there are two of this name");
      if (name.empty() || !scope.has_itself(name)) scope.define(name, at);  // it may be an input's default
    };
    for (const auto& tensor : graph.initializer()) {
      const Place at = place.inner("initializer", tensor.name());
      initialize(tensor.name(), at);
      check_tensor(tensor, at, external_);
    }
    for (const auto& tensor : graph.sparse_initializer()) {
      const Place at = place.inner("sparse initializer", tensor.values().name());
      initialize(tensor.values().name(), at);
      check_sparse_tensor(tensor, at, external_);
    }
    check_nodes(graph.node(), scope, section, place);
    for (const ValueInfoProto& value : graph.value_info()) check_type(value, place.inner("value", value.name()));
    for (const ValueInfoProto& output : graph.output()) {
      const Place at = place.inner("output", output.name());
      if (output.name().empty() || !scope.has(output.name())) at.fail("no node makes it, and it is no input");
      check_type(output, at);
    }
  }

  template <class Nodes>
  void check_nodes(const Nodes& nodes, Scope& scope, Section& section, const Place& place) {
    std::int64_t index = 0;
    std::unordered_set<std::string_view> node_names;
    for (const NodeProto& node : nodes) {
      const Place at = place.inner("node", node.name(), index++, node.op_type());
      if (!node.name().empty() && !node_names.insert(node.name()).second) at.fail("there are two of this name");
      if (node.op_type().empty()) at.fail("it names no operator");
      const std::string_view domain = domain_of(node.domain());
      if (!section.opsets.contains(domain))
        at.fail(fmt::format("the model does not say which version of {} it uses", named(domain)));
      for (const std::string& input : node.input()) {
        if (input.empty() || scope.has(input)) continue;  // "": an optional input left out
        at.fail(fmt::format("it uses '{}', which nothing before it makes", base::printable(input)));
      }
      std::unordered_set<std::string_view> names;
      for (const AttributeProto& attribute : node.attribute()) {
        const Place at_attribute = at.inner("attribute", attribute.name());
        if (attribute.name().empty()) at_attribute.fail("it has no name");
        if (!names.insert(attribute.name()).second) at_attribute.fail("there are two of this name");
        check_attribute(attribute, scope, section, at_attribute);
      }
      if (domain.empty()) check_operator(node, at);
      for (const std::string& output : node.output()) {
        if (!output.empty()) scope.define(output, at);
      }
      ++section.nodes;
      if (const FunctionKey key{domain, node.op_type()}; functions_.contains(key)) ++section.calls[key];
    }
  }

  void check_attribute(const AttributeProto& a, const Scope& scope, Section& section, const Place& place) {
    const auto some = [](const auto& list) { return list.empty() ? 0 : 1; };
    const int present = static_cast<int>(a.has_f()) + static_cast<int>(a.has_i()) + static_cast<int>(a.has_s()) +
                        static_cast<int>(a.has_t()) + static_cast<int>(a.has_g()) +
                        static_cast<int>(a.has_sparse_tensor()) + static_cast<int>(a.has_tp()) + some(a.floats()) +
                        some(a.ints()) + some(a.strings()) + some(a.tensors()) + some(a.graphs()) +
                        some(a.sparse_tensors()) + some(a.type_protos());
    if (!a.ref_attr_name().empty()) {
      if (!section.of_function) place.fail("it refers to a function's attribute, but stands in no function");
      if (present > 0) place.fail("it has a value and refers to another attribute, too");
      return;
    }
    const auto own = presence_of(a);
    if (!own) place.fail("its type is missing or unknown");
    // Writers of another generation of the format leave out numbers that are 0.
    if (present > own->values || (own->needed && present == 0)) place.fail("what it holds is not what its type says");
    if (a.has_t()) check_tensor(a.t(), place, external_);
    if (a.has_sparse_tensor()) check_sparse_tensor(a.sparse_tensor(), place, external_);
    for (const auto& tensor : a.tensors()) check_tensor(tensor, place, external_);
    for (const auto& tensor : a.sparse_tensors()) check_sparse_tensor(tensor, place, external_);
    const auto check_inner = [&](const GraphProto& graph) {
      Scope inner(&scope);
      check_graph(graph, inner, section, place);
    };
    if (a.has_g()) check_inner(a.g());
    for (const GraphProto& graph : a.graphs()) check_inner(graph);
  }

  struct Presence {
    int values;   // 1 when the field of the type is there
    bool needed;  // it has to be
  };
  static std::optional<Presence> presence_of(const AttributeProto& a) {
    switch (a.type()) {
      case AttributeProto::FLOAT: return Presence{a.has_f(), false};
      case AttributeProto::INT: return Presence{a.has_i(), false};
      case AttributeProto::STRING: return Presence{a.has_s(), false};
      case AttributeProto::TENSOR: return Presence{a.has_t(), true};
      case AttributeProto::GRAPH: return Presence{a.has_g(), true};
      case AttributeProto::SPARSE_TENSOR: return Presence{a.has_sparse_tensor(), true};
      case AttributeProto::TYPE_PROTO: return Presence{a.has_tp(), true};
      case AttributeProto::FLOATS: return Presence{!a.floats().empty(), false};
      case AttributeProto::INTS: return Presence{!a.ints().empty(), false};
      case AttributeProto::STRINGS: return Presence{!a.strings().empty(), false};
      case AttributeProto::TENSORS: return Presence{!a.tensors().empty(), false};
      case AttributeProto::GRAPHS: return Presence{!a.graphs().empty(), false};
      case AttributeProto::SPARSE_TENSORS: return Presence{!a.sparse_tensors().empty(), false};
      case AttributeProto::TYPE_PROTOS: return Presence{!a.type_protos().empty(), false};
      case AttributeProto::UNDEFINED: break;
    }
    return {};
  }

  static void check_type(const ValueInfoProto& value, const Place& place) {
    if (!value.has_type()) return;  // a runtime finds it out
    const TypeProto* type = &value.type();
    if (type->value_case() == TypeProto::VALUE_NOT_SET) place.fail("its type says nothing");
    while (type->has_sequence_type() || type->has_optional_type()) {
      type = type->has_sequence_type() ? &type->sequence_type().elem_type() : &type->optional_type().elem_type();
    }
    if (!type->has_tensor_type()) return;
    if (type->tensor_type().elem_type() == 0) place.fail("it has no data type");
    for (const auto& size : type->tensor_type().shape().dim()) {
      if (size.dim_value() < 0)
        place.fail(fmt::format("a size of {}; leave an open size without a value, or name it", size.dim_value()));
    }
  }

  static FunctionKey key_of(const FunctionProto& function) { return {domain_of(function.domain()), function.name()}; }

  void check_functions() {
    for (const FunctionProto& function : model_.functions()) {
      const Place place = top_.inner("function", function.name());
      if (function.name().empty()) place.fail("it has no name");
      Section section;
      section.of_function = true;
      import_opsets(function.opset_import(), section, place);
      Scope scope;
      for (const std::string& input : function.input()) scope.define(input, place.inner("input", input));
      check_nodes(function.node(), scope, section, place);
      for (const std::string& output : function.output()) {
        if (!scope.has(output)) place.inner("output", output).fail("no node makes it, and it is no input");
      }
      // Of overloads, which this definition of the format does not know, the largest counts.
      Function& known = functions_[key_of(function)];
      known.nodes = std::max(known.nodes, section.nodes);
      for (const auto& [callee, times] : section.calls) known.calls[callee] = std::max(known.calls[callee], times);
    }
  }

  /// Refuses functions that call themselves, and a graph that becomes too large when functions take the place of calls.
  void check_expansion(const Section& graph) {
    std::uint64_t nodes = graph.nodes;
    for (const auto& [callee, times] : graph.calls) nodes = added(nodes, times, expanded(callee));
    if (nodes > most_nodes) top_.fail(fmt::format("its functions make more than {} nodes of its graph", most_nodes));
  }
  std::uint64_t expanded(const FunctionKey& key) {
    Function& function = functions_.at(key);
    if (function.state == Function::done) return function.expanded;
    const Place place = top_.inner("function", key.second);
    if (function.state == Function::open) place.fail("it calls itself");
    if (++depth_ > most_depth) place.fail(fmt::format("calls of functions nest more than {} deep", most_depth));
    function.state = Function::open;
    std::uint64_t nodes = function.nodes;
    for (const auto& [callee, times] : function.calls) nodes = added(nodes, times, expanded(callee));
    --depth_;
    function.state = Function::done;
    return function.expanded = nodes;
  }
  static std::uint64_t added(std::uint64_t sum, std::uint64_t times, std::uint64_t nodes) {
    return times > most_nodes || nodes > most_nodes || sum > most_nodes ? most_nodes + 1 : sum + times * nodes;
  }

  struct Function {
    enum { unseen, open, done } state = unseen;
    std::uint64_t nodes = 0, expanded = 0;
    std::map<FunctionKey, std::uint64_t> calls;
  };
  static constexpr int most_depth = 100;

  const ModelProto& model_;
  Place top_;
  std::vector<ExternalData> external_;
  std::map<FunctionKey, Function> functions_;
  int depth_ = 0;
};

}  // namespace

std::vector<ExternalData> check_structure(const ModelProto& model, std::string_view what) {
  return Checker(model, what).check();
}

}  // namespace everyo::onnx_export
