#include "onnx/symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "everyo/ops.h"

namespace everyo::onnx_export {
namespace {

[[noreturn]] void refuse_at(const std::string& scope, const std::string& why) {
  refuse(fmt::format("{} {}", at_module(scope), why));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return a.body() == b.body() || a.size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.spec().bytes()) == 0;
}

class Unifier {
 public:
  Unifier(std::vector<LoweredGraph>& runs, const Symbols& symbols, std::span<const std::vector<std::int64_t>> sizes)
      : runs_(runs), symbols_(symbols), sizes_(sizes), graph_(runs[0].graph) {
    for (const onnx::Node& node : graph_.nodes)
      for (const std::string& name : node.inputs) readers_.try_emplace(name, &node);
  }

  OutputExtents run() {
    for (const LoweredGraph& other : std::span(runs_).subspan(1)) same_nodes(other.graph);
    std::vector<std::size_t> open;  // constants that differ
    for (std::size_t i = 0; i < graph_.constants.size(); ++i)
      if (std::ranges::any_of(runs_, [&](const LoweredGraph& run) {
            return !same_bytes(run.graph.constants[i].value, graph_.constants[i].value);
          }))
        open.push_back(i);
    std::vector<std::string> replaced;
    for (const std::size_t i : open) replaced.push_back(replace(i));
    const OutputExtents outputs = extents_of_outputs();
    std::erase_if(graph_.constants, [&](const onnx::Constant& constant) {
      return std::ranges::find(replaced, constant.name) != replaced.end();
    });
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(sizes_first_.begin()),
                        std::make_move_iterator(sizes_first_.end()));
    return outputs;
  }

 private:
  void same_nodes(const onnx::Graph& other) {
    for (std::size_t i = 0; i < std::min(graph_.nodes.size(), other.nodes.size()); ++i) {
      const onnx::Node &a = graph_.nodes[i], &b = other.nodes[i];
      if (a.type != b.type || a.inputs != b.inputs)
        refuse_at(a.scope,
                  fmt::format(
                      "the ops depend on the input's values or sizes: {} in one run, {} in another; export a function "
                      "whose ops are always the same",
                      a.type, b.type));
      for (std::size_t k = 0; k < a.attributes.size(); ++k)
        if (a.attributes[k].value != b.attributes[k].value)
          refuse_at(a.scope,
                    fmt::format(
                        "attribute '{}' of {} depends on the input's values or sizes, and the file can hold one value; "
                        "leave fewer sizes open",
                        a.attributes[k].name, a.type));
    }
    if (graph_.nodes.size() != other.nodes.size() || graph_.constants.size() != other.constants.size())
      refuse_at(
          "",
          fmt::format(
              "the number of ops depends on the input's values or sizes: {} nodes in one run, {} in another; export a "
              "function whose ops are always the same",
              graph_.nodes.size(), other.nodes.size()));
  }

  // The constant's place in all runs, as the sizes it would have in any.
  std::string replace(std::size_t index) {
    const onnx::Constant& constant = graph_.constants[index];
    const std::string name = constant.name;
    const auto reader = readers_.find(name);
    const std::string scope = reader == readers_.end() ? "" : reader->second->scope;
    const std::string type = reader == readers_.end() ? "an output" : reader->second->type;
    std::vector<Tensor> values;
    for (const LoweredGraph& run : runs_) values.push_back(run.graph.constants[index].value);
    if (sized_integers(values)) return replace_integers(index, name, values, scope, type);
    return replace_repeated(name, values, scope, type);
  }

  static bool sized_integers(const std::vector<Tensor>& values) {
    return std::ranges::all_of(
        values, [&](const Tensor& t) { return t.dtype() == int64 && t.rank() == 1 && t.shape() == values[0].shape(); });
  }

  // [2, 3, batch]: computed in the graph. A Reshape with one open size leaves it to the runtime.
  std::string replace_integers(std::size_t index, const std::string& name, const std::vector<Tensor>& values,
                               const std::string& scope, const std::string& type) {
    std::vector<Extent> extents;
    for (std::int64_t k = 0; k < values[0].size(); ++k)
      extents.push_back(extent_at(
          [&](std::size_t run) { return values[run].data<std::int64_t>()[static_cast<std::size_t>(k)]; },
          [&] {
            return fmt::format(
                "a number that {} reads depends on the input's values, or on its sizes in no way the graph can "
                "compute; compute it by everyo's ops",
                type);
          },
          scope));
    const auto open = std::ranges::count_if(extents, [](const Extent& extent) { return !extent.fixed(); });
    const auto whole = values[0].data<std::int64_t>();
    if (type == "Reshape" && open == 1 && std::ranges::find(whole, 0) == whole.end()) {
      const Tensor sizes = values[0].copy();
      for (std::size_t k = 0; k < extents.size(); ++k)
        if (!extents[k].fixed()) sizes.data<std::int64_t>()[k] = -1;
      graph_.constants[index].value = sizes;
      return "";
    }
    std::vector<std::string> parts;
    for (const Extent& extent : extents) parts.push_back(edge_of(extent));
    sizes_first_.push_back({"Concat", parts, {name}, {{"axis", std::int64_t{0}}}, scope});
    return name;
  }

  // Rows that are all the same along the open axes: one of them, expanded to the sizes of the run.
  std::string replace_repeated(const std::string& name, const std::vector<Tensor>& values, const std::string& scope,
                               const std::string& type) {
    const auto why = [&] {
      return fmt::format(
          "{} reads values that were computed from the input outside of everyo's ops, or hold a row for each of "
          "an open size; compute them by everyo's ops",
          type);
    };
    const Tensor& base = values[0];
    std::vector<Extent> extents;
    std::vector<Slice> first(static_cast<std::size_t>(base.rank()));
    for (const Tensor& value : values)
      if (value.dtype() != base.dtype() || value.rank() != base.rank()) refuse_at(scope, why());
    for (std::int64_t d = 0; d < base.rank(); ++d) {
      extents.push_back(extent_at([&](std::size_t run) { return values[run].shape()[d]; }, why, scope));
      if (!extents.back().fixed()) first[static_cast<std::size_t>(d)] = {0, 1};
    }
    const NoGrad no_grad;
    const Tensor row = slice(base, first).copy();
    for (const Tensor& value : values)
      if (!same_bytes(broadcast_to(row, value.shape()), value)) refuse_at(scope, why());
    std::vector<std::string> parts;
    for (const Extent& extent : extents) parts.push_back(edge_of(extent));
    const onnx::Value kept = graph_.constant(row);
    const std::string shape = name + "/shape";
    sizes_first_.push_back({"Concat", parts, {shape}, {{"axis", std::int64_t{0}}}, scope});
    sizes_first_.push_back({"Expand", {kept.name, shape}, {name}, {}, scope});
    return name;
  }

  template <class Values, class Why>
  Extent extent_at(Values&& value_of, Why&& why, const std::string& scope) {
    std::vector<std::int64_t> list;
    for (std::size_t run = 0; run < runs_.size(); ++run) list.push_back(value_of(run));
    const std::optional<Extent> extent = extent_of(list, sizes_);
    if (!extent) refuse_at(scope, why());
    return *extent;
  }

  // An int64 edge of one element that holds the extent when the graph runs.
  std::string edge_of(const Extent& extent) {
    const auto number = [&](std::int64_t value) { return graph_.integers({value}).name; };
    if (extent.fixed()) return number(extent.constant);
    if (const auto symbol = extent.symbol()) return edge_of_symbol(*symbol);
    const auto key = std::tuple(extent.product, extent.constant, extent.factors);
    if (const auto known = computed_.find(key); known != computed_.end()) return known->second;
    std::string result = extent.constant == (extent.product ? 1 : 0) ? "" : number(extent.constant);
    const auto join = [&](const char* type, const std::string& a, const std::string& b) {
      const std::string name = fmt::format("size_{}/{}", type, sizes_first_.size());
      sizes_first_.push_back({type, {a, b}, {name}, {}, ""});
      return name;
    };
    for (std::size_t i = 0; i < extent.factors.size(); ++i) {
      const std::int64_t factor = extent.factors[i];
      if (factor == 0) continue;
      std::string term = edge_of_symbol(i);
      if (!extent.product && factor != 1) term = join("Mul", term, number(factor));
      for (std::int64_t k = 1; extent.product && k < factor; ++k) term = join("Mul", term, edge_of_symbol(i));
      result = result.empty() ? term : join(extent.product ? "Mul" : "Add", result, term);
    }
    return computed_[key] = result;
  }

  std::string edge_of_symbol(std::size_t i) {
    const Symbol& symbol = symbols_.list[i];
    const std::string shape = "shape/" + symbol.name, name = "size/" + symbol.name;
    if (!symbols_made_.insert(i).second) return name;
    const std::string axis = graph_.integers({symbol.axis}).name;
    sizes_first_.push_back({"Shape", {symbol.input}, {shape}, {}, ""});
    sizes_first_.push_back({"Gather", {shape, axis}, {name}, {{"axis", std::int64_t{0}}}, ""});
    return name;
  }

  OutputExtents extents_of_outputs() {
    OutputExtents outputs;
    for (std::size_t i = 0; i < runs_[0].outputs.size(); ++i) {
      std::vector<Extent>& extents = outputs.emplace_back();
      const Spec& base = runs_[0].outputs[i].spec;
      const auto why = [&] { return fmt::format("the rank or dtype of output {} depends on the input", i); };
      for (const LoweredGraph& run : runs_)
        if (run.outputs[i].spec.shape.rank() != base.shape.rank() || run.outputs[i].spec.dtype != base.dtype)
          refuse_at("", why());
      for (std::int64_t d = 0; d < base.shape.rank(); ++d) {
        std::vector<std::int64_t> values;
        for (const LoweredGraph& run : runs_) values.push_back(run.outputs[i].spec.shape[d]);
        // A size that is no simple function of the open ones has no name; the graph computes it all the same.
        extents.push_back(extent_of(values, sizes_).value_or(Extent{-1, {}, false}));
      }
    }
    return outputs;
  }

  std::vector<LoweredGraph>& runs_;
  const Symbols& symbols_;
  std::span<const std::vector<std::int64_t>> sizes_;
  onnx::Graph& graph_;
  std::map<std::string, const onnx::Node*> readers_;  // the first of each edge
  std::vector<onnx::Node> sizes_first_;               // what computes sizes, from the inputs alone
  std::set<std::size_t> symbols_made_;                // those that have edges
  std::map<std::tuple<bool, std::int64_t, std::vector<std::int64_t>>, std::string> computed_;  // edges of other extents
};

}  // namespace

OutputExtents unify(std::vector<LoweredGraph>& runs, const Symbols& symbols,
                    std::span<const std::vector<std::int64_t>> sizes) {
  for (const LoweredGraph& run : runs)
    if (run.outputs.size() != runs[0].outputs.size())
      refuse_at("", fmt::format("the function gives {} outputs in one run and {} in another", runs[0].outputs.size(),
                                run.outputs.size()));
  return Unifier(runs, symbols, sizes).run();
}

}  // namespace everyo::onnx_export
