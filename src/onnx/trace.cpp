#include "onnx/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "everyo/ops.h"
#include "everyo/random.h"

namespace everyo::onnx_export {
namespace {

// Prime, so that an open size is not mistaken for another one; the last is large enough to show most limits on a batch.
constexpr std::int64_t base_batch = 2, varied_batch = 3, last_batch = 17;

std::size_t place_of(std::span<const OnnxInput> inputs, const SymbolicAxis& symbolic) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].name == symbolic.input) return i;
  std::string names;
  for (const OnnxInput& input : inputs) names += (names.empty() ? "'" : ", '") + input.name + "'";
  throw ValueError(fmt::format(
      "[export_onnx] symbolic axis '{}' is of input '{}', which the function does not have; its inputs are {}",
      symbolic.name, symbolic.input, names));
}

Tensor drawn(const OnnxInput& input, const Shape& shape, Generator& generator, double mean) {
  const DType dtype = input.spec.dtype;
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  if (is_floating(dtype))
    generator.normal(mean, 1, values);
  else
    for (double& value : values)
      value = std::floor(generator.random() * static_cast<double>(dtype == boolean ? 2 : input.integers_below));
  return cast(Tensor::from(std::span<const double>(values), shape), dtype);
}

}  // namespace

void refuse(const std::string& why) {
  throw StateError(fmt::format("[export_onnx] {}", why), ErrorKind::serialization);
}

std::string at_module(const std::string& module) {
  return module.empty() ? "in the outermost module" : fmt::format("in module '{}'", module);
}

std::vector<Shape> Symbols::shapes(std::span<const OnnxInput> inputs, std::span<const std::int64_t> sizes) const {
  std::vector<Shape> shapes;
  for (const OnnxInput& input : inputs) shapes.push_back(input.spec.shape);
  for (const auto& [place, symbol] : of_axis) shapes[place.first].set(place.second, sizes[symbol]);
  return shapes;
}

Symbols symbols_of(std::span<const OnnxInput> inputs, const OnnxOptions& options) {
  std::map<std::pair<std::size_t, std::int64_t>, std::string> names;  // (input, axis) -> the last name given
  if (!options.batch_name.empty()) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].spec.shape.rank() > 0) names[{i, 0}] = options.batch_name;
  }
  for (const SymbolicAxis& symbolic : options.symbolic) {
    const std::size_t input = place_of(inputs, symbolic);
    const std::int64_t rank = inputs[input].spec.shape.rank();
    const std::int64_t axis = symbolic.axis < 0 ? symbolic.axis + rank : symbolic.axis;
    if (axis < 0 || axis >= rank)
      throw ValueError(
          fmt::format("[export_onnx] symbolic axis '{}' is axis {} of input '{}', which has {} axes; take {} to {}",
                      symbolic.name, symbolic.axis, symbolic.input, rank, -rank, rank - 1));
    if (symbolic.name.empty())
      throw ValueError(
          fmt::format("[export_onnx] axis {} of input '{}' has an empty name; name it", axis, symbolic.input));
    names[{input, axis}] = symbolic.name;
  }
  Symbols symbols;
  for (const auto& [place, name] : names) {
    const auto& [input, axis] = place;
    const auto known = std::ranges::find(symbols.list, name, &Symbol::name);
    symbols.of_axis[place] = static_cast<std::size_t>(known - symbols.list.begin());
    if (known != symbols.list.end()) continue;
    const bool batch = name == options.batch_name;
    const std::int64_t given = std::max<std::int64_t>(inputs[input].spec.shape[axis], 2);
    symbols.list.push_back({name, inputs[input].name, axis, batch ? base_batch : given,
                            batch ? varied_batch : given + 1, batch ? last_batch : given + 3});
  }
  return symbols;
}

std::vector<Tensor> draw(std::span<const OnnxInput> inputs, std::span<const Shape> shapes, std::uint64_t seed,
                         double mean) {
  Generator generator(seed);
  std::vector<Tensor> drawn_inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) drawn_inputs.push_back(drawn(inputs[i], shapes[i], generator, mean));
  return drawn_inputs;
}

std::vector<Tensor> call(const OnnxFunction& function, const std::vector<Tensor>& inputs, const OnnxOptions& options) {
  const NoGrad no_grad;
  const Scoped<&Context::autocast> autocast(options.autocast.has_value());
  const Scoped<&Context::autocast_dtype> dtype(options.autocast.value_or(context().autocast_dtype));
  return function(inputs);
}

Trace trace(const OnnxFunction& function, std::vector<Tensor> inputs, const OnnxOptions& options) {
  Tracer tracer;
  std::vector<Tensor> outputs;
  std::vector<std::uint32_t> versions;
  for (const Tensor& input : inputs) versions.push_back(input.body()->version());
  {
    const Scoped<&Context::tracer> tracing(&tracer);
    outputs = call(function, inputs, options);
  }
  return {std::move(inputs), std::move(outputs), std::move(versions), std::move(tracer.steps)};
}

}  // namespace everyo::onnx_export
