#pragma once
#include <span>
#include <vector>

#include "onnx/write.h"

// The steps of an export, one by one: for the checks of verify, which change a graph between them.
namespace everyo::onnx_export {

/// Throws StateError (serialization) naming the first module in training mode.
void check_modes(ModuleBase& model);

struct ExportedGraph {
  Trace trace;  ///< the run that `whole` was made from
  LoweredGraph whole;
  Signature signature;
};

/// Throws as export_onnx_traced does, before anything is written.
ExportedGraph export_graph(const OnnxFunction& function, std::span<const OnnxInput> inputs, const OnnxOptions& options,
                           const StateDict& state);

/// How far a tensor that the runtime made is from ours; infinitely where the shapes, or a NaN or an infinity, differ.
struct Difference {
  double absolute = 0, relative = 0;  ///< as in OnnxAgreement
};
Difference difference(const Tensor& ours, const Tensor& theirs);

/// Runs the loaded file and the function on random inputs of several sizes; one an output. Throws StateError
/// (serialization) when one differs by more than is allowed, naming the first module where they part: for that a second
/// file lies for a while beside `path`.
std::vector<OnnxAgreement> compare(const OnnxFunction& function, std::span<const OnnxInput> inputs,
                                   const ExportedGraph& exported, const OnnxModel& file,
                                   const std::filesystem::path& path, const OnnxOptions& options);

/// Writes the graph, loads it in the runtime if that is there, compares if asked to, and puts the file in place.
OnnxReport write_model(const ExportedGraph& exported, const OnnxFunction& function, const std::filesystem::path& path,
                       std::span<const OnnxInput> inputs, const OnnxOptions& options);

}  // namespace everyo::onnx_export
