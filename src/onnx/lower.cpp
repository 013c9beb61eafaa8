#include "onnx/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "ops/lowering.h"

namespace everyo::onnx_export {
namespace {

// What makes two tensors the same values: detach() and the like give a new body over the same bytes.
using Place = std::tuple<const Storage*, std::size_t, DType, std::vector<std::int64_t>>;
Place place_of(const Tensor& t) {
  const auto sizes = t.shape().sizes();
  return {t.body()->storage.get(), t.body()->offset, t.dtype(), {sizes.begin(), sizes.end()}};
}

[[noreturn]] void refuse_step(const Tracer::Step& step, const std::string& why) {
  refuse(fmt::format("op {} {} {}", step.op->name, at_module(step.module), why));
}

class Lowering {
 public:
  Lowering(const Trace& trace, std::span<const OnnxInput> inputs, const StateNames& names, const OnnxOptions& options)
      : trace_(trace), names_(names) {
    lowered_.graph.opset = options.opset;
    for (std::size_t i = 0; i < inputs.size(); ++i) add_input(i, inputs[i].name);
  }

  LoweredGraph run(const OnnxOptions& options) {
    for (std::size_t i = 0; i < trace_.steps.size(); ++i) add_step(i);
    add_outputs(options);
    return std::move(lowered_);
  }

 private:
  onnx::Graph& graph() { return lowered_.graph; }

  // A value rounded to bfloat16, as the float32 that holds it.
  onnx::Value carried(const onnx::Value& value) {
    return lower_cast(graph(), lower_cast(graph(), value, bfloat16), float32);
  }

  void know(const Tensor& tensor, const onnx::Value& value) {
    by_body_.insert_or_assign(tensor.body(), value);
    if (!tensor.is_meta()) by_place_.insert_or_assign(place_of(tensor), value);
  }

  void add_input(std::size_t i, const std::string& name) {
    const Tensor& tensor = trace_.inputs[i];
    const Spec spec = tensor.spec();
    if (!trace_.versions.empty() && tensor.body()->version() != trace_.versions[i])
      refuse(fmt::format("the function changes input '{}' in place; let it change a copy()", name));
    onnx::Value value{name, {spec.dtype == bfloat16 ? float32 : spec.dtype, spec.shape}};
    lowered_.inputs.push_back(value);
    know(tensor, spec.dtype == bfloat16 ? carried(value) : value);
  }

  // The edge of a tensor: an input's, an op's, or that of a new constant.
  onnx::Value edge_of(const Tensor& tensor, const Tracer::Step* reader) {
    if (const auto known = by_body_.find(tensor.body()); known != by_body_.end()) return known->second;
    if (tensor.is_meta())
      refuse_step(*reader, "reads a tensor without values; materialise() the model before the export");
    if (const auto known = by_place_.find(place_of(tensor)); known != by_place_.end()) return known->second;
    const auto name = names_.find(tensor.bytes());
    onnx::Value value = graph().constant(tensor);
    if (name != names_.end() && name->second.second == tensor.spec())
      value.name = graph().constants.back().name = name->second.first;
    if (tensor.dtype() == bfloat16) value = carried(value);
    know(tensor, value);
    return value;
  }

  void add_step(std::size_t index) {
    const Tracer::Step& step = trace_.steps[index];
    graph().scope = step.module;
    onnx::Values in;
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      if (step.in[k].body()->version() != step.versions[k])
        refuse_step(step, "reads a value that was changed in place afterwards; change a copy()");
      in.push_back(edge_of(step.in[k], &step));
    }
    if (!step.op->onnx)
      refuse_step(step, fmt::format("has no ONNX form: {}; export_onnx_traced takes a function that leaves it out",
                                    step.op->no_onnx ? step.op->no_onnx : "its record gives none"));
    onnx::Values out = step.op->onnx(graph(), in, step.attrs.get());
    for (std::size_t k = 0; k < std::min(out.size(), step.out.size()); ++k) {
      const Tensor& tensor = step.out[k];
      if (tensor.body()->version() != step.versions[step.in.size() + k])
        refuse_step(step, "made a value that was changed in place afterwards; change a copy() before it enters an op");
      onnx::Value value = out[k];
      if (tensor.dtype() == bfloat16 && (value.spec.dtype == bfloat16 || computes(step))) value = carried(value);
      know(tensor, value);
      lowered_.made.push_back({value, index, k});
    }
  }

  // An op that only moves values leaves them rounded as they were.
  static bool computes(const Tracer::Step& step) {
    std::vector<const Tensor*> in;
    std::vector<Spec> out;
    for (const Tensor& tensor : step.in) in.push_back(&tensor);
    for (const Tensor& tensor : step.out) out.push_back(tensor.spec());
    return step.op->cost(Inputs(in.data(), in.size()), Specs(std::span<const Spec>(out)), step.attrs.get()).flops != 0;
  }

  void add_outputs(const OnnxOptions& options) {
    if (trace_.steps.empty())
      refuse("the run recorded no operations; export a function of its inputs made of everyo's ops");
    graph().scope.clear();
    const std::size_t count = trace_.outputs.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (!trace_.outputs[i].defined()) refuse(fmt::format("output {} is an undefined tensor; return values", i));
      const onnx::Value value = edge_of(trace_.outputs[i], &trace_.steps.back());
      const std::string name = count == 1 ? options.output_name : fmt::format("{}_{}", options.output_name, i);
      // An input, a weight, or a value that is an output already gets a node of its own.
      if (!rename(value.name, name)) graph().nodes.push_back({"Identity", {value.name}, {name}, {}, ""});
      lowered_.outputs.push_back({name, value.spec});
    }
  }

  // Gives a value that a node makes the name of an output, unless it has one already.
  bool rename(const std::string& from, const std::string& to) {
    const auto made_here = [&](const onnx::Node& node) {
      return std::ranges::find(node.outputs, from) != node.outputs.end();
    };
    const auto is_output = [&](const onnx::Value& output) { return output.name == from; };
    if (std::ranges::none_of(graph().nodes, made_here) || std::ranges::any_of(lowered_.outputs, is_output))
      return false;
    for (onnx::Node& node : graph().nodes) {
      std::ranges::replace(node.inputs, from, to);
      std::ranges::replace(node.outputs, from, to);
    }
    for (MadeValue& made : lowered_.made)
      if (made.value.name == from) made.value.name = to;
    for (auto& [body, value] : by_body_)
      if (value.name == from) value.name = to;
    for (auto& [place, value] : by_place_)
      if (value.name == from) value.name = to;
    return true;
  }

  const Trace& trace_;
  const StateNames& names_;
  LoweredGraph lowered_;
  std::map<const Body*, onnx::Value> by_body_;
  std::map<Place, onnx::Value> by_place_;
};

}  // namespace

StateNames names_of(const StateDict& state) {
  StateNames names;
  for (const auto& [name, tensor] : state)
    if (!tensor.is_meta()) names.emplace(tensor.bytes(), std::pair(name, tensor.spec()));
  return names;
}

LoweredGraph lower(const Trace& trace, std::span<const OnnxInput> inputs, const StateNames& names,
                   const OnnxOptions& options) {
  return Lowering(trace, inputs, names, options).run(options);
}

void prune(LoweredGraph& lowered) {
  std::set<std::string> needed;
  for (const onnx::Value& output : lowered.outputs) needed.insert(output.name);
  std::vector<onnx::Node> kept;
  std::vector<onnx::Node>& nodes = lowered.graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](const std::string& name) { return needed.contains(name); })) continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  std::ranges::reverse(kept);
  nodes = std::move(kept);
  std::erase_if(lowered.graph.constants,
                [&](const onnx::Constant& constant) { return !needed.contains(constant.name); });
}

}  // namespace everyo::onnx_export
