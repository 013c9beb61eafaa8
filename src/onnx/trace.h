#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "everyo/onnx.h"
#include "everyo/op.h"

// Runs of the function that is exported: one for each choice of the sizes that stay open.
namespace everyo::onnx_export {

/// Throws the StateError (serialization) of what has no place in a file: "[export_onnx] WHY".
[[noreturn]] void refuse(const std::string& why);
/// "in module 'blocks.0'", for its words.
std::string at_module(const std::string& module);

/// A size that stays open: its name, the first input axis that has it, and the sizes of the three kinds of run.
struct Symbol {
  std::string name;
  std::string input;
  std::int64_t axis = 0;
  std::int64_t base = 0, varied = 0, last = 0;
};

/// The open sizes of the inputs, each name once, in the order in which the inputs' axes show them.
struct Symbols {
  std::vector<Symbol> list;
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> of_axis;  ///< (input, axis) -> place in list

  /// The inputs' shapes when symbol i has `sizes[i]`.
  [[nodiscard]] std::vector<Shape> shapes(std::span<const OnnxInput> inputs, std::span<const std::int64_t> sizes) const;
};
/// Throws ValueError for an axis that names no input or lies outside its rank.
Symbols symbols_of(std::span<const OnnxInput> inputs, const OnnxOptions& options);

/// What is known of one run.
struct Trace {
  std::vector<Tensor> inputs, outputs;
  std::vector<std::uint32_t> versions;  ///< of the inputs, before the run; empty: not known
  std::vector<Tracer::Step> steps;
};

/// Random inputs of the given shapes: floating ones normal around `mean`, integers below their limit.
std::vector<Tensor> draw(std::span<const OnnxInput> inputs, std::span<const Shape> shapes, std::uint64_t seed,
                         double mean = 0);

/// Calls the function as an exported graph computes it: without gradients, under the autocast asked for or none.
std::vector<Tensor> call(const OnnxFunction& function, const std::vector<Tensor>& inputs, const OnnxOptions& options);
/// The same with every op noted.
Trace trace(const OnnxFunction& function, std::vector<Tensor> inputs, const OnnxOptions& options);

}  // namespace everyo::onnx_export
