#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "onnx/trace.h"

// From the ops of a run to the nodes of a graph.
namespace everyo::onnx_export {

/// Names of parameters and buffers by where their values lie, of which a tensor of the same spec is one.
using StateNames = std::map<const std::byte*, std::pair<std::string, Spec>>;
StateNames names_of(const StateDict& state);

/// A value that an op made, and the edge of the graph that carries it. bfloat16 values travel as float32, which the
/// runtimes compute in, and are rounded where they are made.
struct MadeValue {
  onnx::Value value;
  std::size_t step = 0, output = 0;  ///< which of the run's
};

struct LoweredGraph {
  onnx::Graph graph;
  onnx::Values inputs, outputs;
  std::vector<MadeValue> made;  ///< in the order of the run
};

/// Throws StateError (serialization) naming module and op for an op without an ONNX form, for values that were changed
/// in place, and for a run without ops.
LoweredGraph lower(const Trace& trace, std::span<const OnnxInput> inputs, const StateNames& names,
                   const OnnxOptions& options);

/// Leaves out the nodes and constants that no output needs.
void prune(LoweredGraph& lowered);

}  // namespace everyo::onnx_export
