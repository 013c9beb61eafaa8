#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx/lower.h"

// Graphs of runs with several sizes, made one graph in which those sizes are open.
namespace everyo::onnx_export {

/// A size as a function of the open ones: constant + sum of factors[i] times symbol i, or constant times the product of
/// the symbols to the power factors[i].
struct Extent {
  std::int64_t constant = 0;
  std::vector<std::int64_t> factors;
  bool product = false;

  /// The symbol that this is, and nothing else.
  [[nodiscard]] std::optional<std::size_t> symbol() const;
  [[nodiscard]] bool fixed() const;
  /// "batch", "2*batch + 1", "batch*time".
  [[nodiscard]] std::string text(const Symbols& symbols) const;
};

/// The function through the values that a size had in the runs, whose symbols had `sizes` [runs][symbols]: the base,
/// one a symbol with only that changed, and the last with all of them changed, which decides. Nothing if there is none.
std::optional<Extent> extent_of(std::span<const std::int64_t> values, std::span<const std::vector<std::int64_t>> sizes);

/// What the outputs' sizes are, [outputs][axes].
using OutputExtents = std::vector<std::vector<Extent>>;

/// Makes the first of `runs`' graphs that of all: what differs between them must follow from the open sizes, and is
/// then computed in the graph. Throws StateError (serialization) naming the module and what else differs.
OutputExtents unify(std::vector<LoweredGraph>& runs, const Symbols& symbols,
                    std::span<const std::vector<std::int64_t>> sizes);

}  // namespace everyo::onnx_export
