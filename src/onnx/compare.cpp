#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "everyo/ops.h"
#include "onnx/export.h"

namespace everyo::onnx_export {
namespace {

// float32: sums in another order. Halves: units of their last place, 2^-10 and 2^-7, for edges at which the runtime
// rounds and a fused op does not, and what later layers make of that.
constexpr double float32_tolerance = 1e-5, units_of_halves = 8;

NamedTensors named(std::span<const OnnxInput> inputs, const std::vector<Tensor>& values) {
  NamedTensors list;
  for (std::size_t i = 0; i < inputs.size(); ++i) list.emplace_back(inputs[i].name, values[i]);
  return list;
}

void widen(OnnxAgreement& agreement, const Difference& by) {
  agreement.absolute = std::max(agreement.absolute, by.absolute);
  agreement.relative = std::max(agreement.relative, by.relative);
}

double allowed_for(const Trace& trace) {
  double allowed = float32_tolerance;
  for (const Tracer::Step& step : trace.steps)
    for (const Tensor& t : step.out)
      if (is_half(t.dtype())) allowed = std::max(allowed, units_of_halves * finfo(t.dtype()).eps);
  return allowed;
}

// The batches of a comparison: sizes of the symbols, [batches][symbols].
std::vector<std::vector<std::int64_t>> check_sizes(const Symbols& symbols, const OnnxOptions& options) {
  std::vector<std::vector<std::int64_t>> list;
  const bool batch_is_open = std::ranges::find(symbols.list, options.batch_name, &Symbol::name) != symbols.list.end();
  const std::vector<std::int64_t> once{0};
  for (const std::int64_t batch : batch_is_open ? options.check_batches : once) {
    std::vector<std::int64_t>& sizes = list.emplace_back();
    for (const Symbol& symbol : symbols.list)
      sizes.push_back(symbol.name == options.batch_name ? batch
                                                        : symbol.base + static_cast<std::int64_t>(list.size()) - 1);
  }
  return list;
}

// The first op whose value differs, from a file that gives all values away.
std::string where_they_part(const OnnxFunction& function, std::span<const OnnxInput> inputs,
                            const ExportedGraph& exported, const std::filesystem::path& path,
                            const std::vector<Tensor>& values, double allowed, const OnnxOptions& options) {
  LoweredGraph open = exported.whole;
  Signature signature = exported.signature;
  open.outputs.clear();
  signature.outputs.clear();
  for (const MadeValue& made : exported.whole.made) {
    if (std::ranges::find(open.outputs, made.value.name, &onnx::Value::name) != open.outputs.end()) continue;
    open.outputs.push_back(made.value);
    signature.outputs.emplace_back(static_cast<std::size_t>(made.value.spec.shape.rank()), Extent{-1, {}, false});
  }
  const ModelFile all(path, open, signature, options);
  const OnnxModel file(all.temporary(), options.runtime);
  const NamedTensors theirs = file.run(file.convert(named(inputs, values)));
  const Trace ours = trace(function, values, options);
  for (const MadeValue& made : exported.whole.made) {
    const Tracer::Step& step = ours.steps.at(made.step);
    const auto found = std::ranges::find(theirs, made.value.name, &NamedTensors::value_type::first);
    if (found == theirs.end()) continue;
    if (const Difference by = difference(step.out[made.output], found->second); by.relative > allowed)
      return fmt::format("they part first {}, op {}: by {:.3g}", at_module(step.module), step.op->name, by.relative);
  }
  return "no single op differs by that much";
}

}  // namespace

Difference difference(const Tensor& ours, const Tensor& theirs) {
  if (ours.shape() != theirs.shape())
    return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  const std::vector<double> a = ours.to_vector(), b = theirs.to_vector();
  Difference most;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double by = std::abs(a[i] - b[i]);
    const double absolute = std::isnan(by) ? std::numeric_limits<double>::infinity() : by;
    most.absolute = std::max(most.absolute, absolute);
    most.relative = std::max(most.relative, absolute / std::max(1.0, std::isfinite(a[i]) ? std::abs(a[i]) : 1.0));
  }
  return most;
}

std::vector<OnnxAgreement> compare(const OnnxFunction& function, std::span<const OnnxInput> inputs,
                                   const ExportedGraph& exported, const OnnxModel& file,
                                   const std::filesystem::path& path, const OnnxOptions& options) {
  const double allowed = options.tolerance != 0 ? options.tolerance : allowed_for(exported.trace);
  std::vector<OnnxAgreement> agreements;
  for (const OnnxValue& output : file.outputs()) agreements.push_back({output.name});
  const Symbols& symbols = exported.signature.symbols;
  std::uint64_t seed = 100;  // other values than those of the export's runs
  for (const std::vector<std::int64_t>& sizes : check_sizes(symbols, options)) {
    const std::vector<Shape> shapes = symbols.shapes(inputs, sizes);
    const std::vector<Tensor> values = draw(inputs, shapes, seed++);
    const std::vector<Tensor> ours = call(function, values, options);
    const NamedTensors theirs = file.run(file.convert(named(inputs, values)));
    for (std::size_t i = 0; i < agreements.size(); ++i) {
      const Difference by = difference(ours.at(i), theirs.at(i).second);
      widen(agreements[i], by);
      if (by.relative <= allowed) continue;
      refuse(fmt::format(
          "in ONNX Runtime output '{}' is {}, {} here, and differs by {:.3g} on inputs {} ({:.3g} is "
          "allowed); {}",
          agreements[i].output, to_string(theirs[i].second.shape()), to_string(ours[i].shape()), by.relative,
          to_string(shapes[0]), allowed, where_they_part(function, inputs, exported, path, values, allowed, options)));
    }
  }
  return agreements;
}

}  // namespace everyo::onnx_export

namespace everyo::inline v1 {

std::vector<OnnxAgreement> compare_onnx(const OnnxFunction& function, const OnnxModel& file,
                                        std::span<const NamedTensors> batches) {
  std::vector<OnnxAgreement> agreements;
  for (const OnnxValue& output : file.outputs()) agreements.push_back({output.name});
  for (const NamedTensors& batch : batches) {
    std::vector<Tensor> values;
    for (const auto& [name, value] : batch) values.push_back(value);
    const NamedTensors theirs = file.run(file.convert(batch));
    const NoGrad no_grad;
    const std::vector<Tensor> ours = function(values);
    if (ours.size() != agreements.size())
      throw ShapeError(
          fmt::format("[compare_onnx] the function gives {} outputs, the file {}; compare it with the function it was "
                      "made from",
                      ours.size(), agreements.size()));
    for (std::size_t i = 0; i < agreements.size(); ++i) {
      const Tensor& there = theirs[i].second;
      if (ours[i].shape() != there.shape())
        throw ShapeError(fmt::format("[compare_onnx] output '{}' is {} in the file, {} here; they must be equal",
                                     agreements[i].output, to_string(there.shape()), to_string(ours[i].shape())));
      onnx_export::widen(agreements[i], onnx_export::difference(ours[i], there));
    }
  }
  return agreements;
}

}  // namespace everyo::inline v1
