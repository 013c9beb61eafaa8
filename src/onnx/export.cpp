#include "onnx/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace everyo::onnx_export {
namespace {

void check_options(std::span<const OnnxInput> inputs, const OnnxOptions& options) {
  if (options.opset < onnx_first_opset || options.opset > onnx_last_opset)
    refuse(
        fmt::format("opset {}; the files have opset {} to {}: an opset 13 or newer, as far as this version knows them",
                    options.opset, onnx_first_opset, onnx_last_opset));
  if (inputs.empty()) throw ValueError("[export_onnx] there are no inputs; name at least one");
  std::set<std::string> names;
  const auto take = [&](const std::string& name, const char* what) {
    if (name.empty()) throw ValueError(fmt::format("[export_onnx] an {} has an empty name; name it", what));
    if (!names.insert(name).second)
      throw ValueError(fmt::format("[export_onnx] two inputs or outputs are called '{}'; names must differ", name));
  };
  for (const OnnxInput& input : inputs) take(input.name, "input");
  take(options.output_name, "output");
  for (const OnnxInput& input : inputs)
    if (!is_floating(input.spec.dtype) && input.integers_below < 1)
      throw ValueError(fmt::format("[export_onnx] input '{}' takes integers below {}; the limit must be at least 1",
                                   input.name, input.integers_below));
  for (const std::int64_t batch : options.check_batches)
    if (batch < 1)
      throw ValueError(fmt::format("[export_onnx] a batch of {} to check on; batches must be positive", batch));
  if (!(options.tolerance >= 0))
    throw ValueError(fmt::format("[export_onnx] tolerance {}; it must be 0 or positive", options.tolerance));
  if (options.autocast && !is_half(*options.autocast))
    throw DTypeError(
        fmt::format("[export_onnx] autocast {}; casts are to float16 or bfloat16", name_of(*options.autocast)));
}

// The base, one run a symbol with that alone changed, and one with all changed.
std::vector<std::vector<std::int64_t>> sizes_of_runs(const Symbols& symbols) {
  std::vector<std::int64_t> base, last;
  for (const Symbol& symbol : symbols.list) {
    base.push_back(symbol.base);
    last.push_back(symbol.last);
  }
  std::vector<std::vector<std::int64_t>> runs{base};
  for (std::size_t i = 0; i < base.size(); ++i) {
    runs.push_back(base);
    runs.back()[i] = symbols.list[i].varied;
  }
  runs.push_back(last);
  return runs;
}

// An input or output that is called as a weight or a value inside would be taken for it.
void check_names(const LoweredGraph& lowered) {
  std::set<std::string> names;
  for (const onnx::Value& input : lowered.inputs) names.insert(input.name);
  const auto take = [&](const std::string& name) {
    if (!names.insert(name).second)
      throw ValueError(fmt::format(
          "[export_onnx] an input or output is called '{0}', as a weight or a value inside is; call it otherwise "
          "(input_name, output_name)",
          name));
  };
  for (const onnx::Constant& constant : lowered.graph.constants) take(constant.name);
  for (const onnx::Node& node : lowered.graph.nodes) std::ranges::for_each(node.outputs, take);
}

std::string shapes_of(const std::vector<Tensor>& inputs) {
  std::string text;
  for (const Tensor& input : inputs) text += (text.empty() ? "" : ", ") + to_string(input.shape());
  return text;
}

Trace trace_at(const OnnxFunction& function, std::span<const OnnxInput> inputs, const Symbols& symbols,
               const std::vector<std::int64_t>& sizes, std::uint64_t seed, const OnnxOptions& options) {
  // Around other means, so that a branch on a sign or a sum shows.
  const double mean = seed == 0 ? 0 : seed % 2 == 0 ? -1.5 : 1.5;
  std::vector<Tensor> drawn = draw(inputs, symbols.shapes(inputs, sizes), seed, mean);
  try {
    return trace(function, drawn, options);
  } catch (const ShapeError& error) {
    throw StateError(
        fmt::format("[export_onnx] the function does not take inputs of shape {}, one of the sizes it is exported for: "
                    "{}; leave fewer sizes open, or give another input_shape",
                    shapes_of(drawn), error.what()),
        ErrorKind::shape);
  }
}

}  // namespace

void check_modes(ModuleBase& model) {
  for (const auto& [path, module] : model.named_modules())
    if (module->training())
      refuse(
          fmt::format("{} ({}) is in training mode, and a file holds what a model computes in use; call eval() on the "
                      "model before the export, train() after it",
                      path.empty() ? "the model" : fmt::format("module '{}'", path), module->type_name()));
}

ExportedGraph export_graph(const OnnxFunction& function, std::span<const OnnxInput> inputs, const OnnxOptions& options,
                           const StateDict& state) {
  check_options(inputs, options);
  ExportedGraph exported;
  Symbols& symbols = exported.signature.symbols = symbols_of(inputs, options);
  const StateNames names = names_of(state);
  const std::vector<std::vector<std::int64_t>> sizes = sizes_of_runs(symbols);
  std::vector<LoweredGraph> graphs;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Other values in each run, so that what is computed from them outside of ops shows.
    Trace run = trace_at(function, inputs, symbols, sizes[i], i, options);
    graphs.push_back(lower(run, inputs, names, options));
    if (i == 0) exported.trace = std::move(run);
  }
  exported.signature.outputs = unify(graphs, symbols, sizes);
  exported.whole = std::move(graphs[0]);
  check_names(exported.whole);
  return exported;
}

OnnxReport write_model(const ExportedGraph& exported, const OnnxFunction& function, const std::filesystem::path& path,
                       std::span<const OnnxInput> inputs, const OnnxOptions& options) {
  LoweredGraph graph = exported.whole;
  prune(graph);
  ModelFile file(path, graph, exported.signature, options);
  OnnxReport report{.path = path,
                    .data = file.data(),
                    .opset = options.opset,
                    .nodes = graph.graph.nodes.size(),
                    .initializers = graph.graph.constants.size(),
                    .bytes = file.bytes()};
  if (options.check || onnx_available(options.runtime)) {
    const OnnxModel loaded(file.temporary(), options.runtime);
    report.loaded = true;
    if (options.check) report.agreements = compare(function, inputs, exported, loaded, path, options);
  }
  file.put_in_place();
  return report;
}

}  // namespace everyo::onnx_export

namespace everyo::inline v1 {

OnnxReport export_onnx_traced(const OnnxFunction& function, const std::filesystem::path& path,
                              std::span<const OnnxInput> inputs, const OnnxOptions& options, const StateDict& names) {
  const onnx_export::ExportedGraph exported = onnx_export::export_graph(function, inputs, options, names);
  return onnx_export::write_model(exported, function, path, inputs, options);
}

OnnxReport export_onnx_traced(const OnnxFunction& function, const std::filesystem::path& path,
                              std::span<const OnnxInput> inputs, const OnnxOptions& options, ModuleBase& model) {
  onnx_export::check_modes(model);
  return export_onnx_traced(function, path, inputs, options, model.state_dict());
}

OnnxReport export_onnx(ModuleBase& model, const std::filesystem::path& path, const Shape& input_shape,
                       const OnnxOptions& options) {
  if (input_shape.rank() == 0)
    throw ShapeError("[export_onnx] input_shape is (); it needs the batch's axis, as (N, …)");
  const OnnxInput input{options.input_name, {options.input_dtype, input_shape}};
  const OnnxFunction function = [&](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{model.forward_any(inputs[0])};
  };
  return export_onnx_traced(function, path, std::span(&input, 1), options, model);
}

}  // namespace everyo::inline v1
