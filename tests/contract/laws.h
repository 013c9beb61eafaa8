#pragma once
#include <string>
#include <vector>

#include "contract/samples.h"
#include "everyo/op.h"

// The laws every op is held to. A law looks at an op through its samples and returns what it found wrong, so that the
// tests can also hold wrong ops to it and see that it finds them.
namespace everyo_test::contract {

/// What is wrong, one line each; empty: the op obeys.
using Findings = std::vector<std::string>;

/// An op and what is known of it.
struct Subject {
  const eo::Op& op;
  const Samples& samples;
};

struct Law {
  const char* name;
  Findings (*check)(const Subject&);
};
/// All laws, in the order of the list below.
std::span<const Law> laws();

/// The samples hold what the other laws need: every case calls the op, batches of 0, 1, 2, 3 and 7, an even and an odd
/// size, a count of the operations, error inputs.
Findings samples_are_complete(const Subject&);
/// float64 and float32 against the plain float64 reference.
Findings values_equal_reference(const Subject&);
/// float64 gradients against central differences; an op without a gradient refuses.
Findings gradients_equal_differences(const Subject&);
/// Any choice of operands that want a gradient, leaves or not, first or further contribution: the same gradient.
Findings gradients_are_independent(const Subject&);
/// float16 and bfloat16: the reference of the rounded operands, rounded once; gradients in the operand's dtype.
/// float32's gradients as float64's.
Findings narrow_dtypes_round_once(const Subject&);
/// Under autocast keep32 gives float32, follow and promote the operands' dtype.
Findings policy_is_kept(const Subject&);
/// FLOPs as counted by hand, bytes as moved, the same on meta tensors, halves move half.
Findings cost_is_counted(const Subject&);
/// On meta tensors: the same specs, and a prediction of the bytes that the tape then saves.
Findings meta_run_predicts(const Subject&);
/// The same bits for 1, 2 and 4 threads, on repeat, and wherever the operands lie.
Findings bits_are_fixed(const Subject&);
/// A fused record and its composition: the same bits, forward and backward.
Findings fused_equals_composed(const Subject&);
/// Of a gradient of 1e-7 in halves, which float16 hardly holds, the two give zeros in the same places.
Findings fused_has_composed_zeros(const Subject&);
/// Lowering gives a graph whose every edge is defined once and whose outputs are the op's, or there is a reason.
Findings lowering_is_well_formed(const Subject&);
/// ONNX Runtime computes the same of the ONNX form: the first, the default and the last opset, all floating dtypes.
Findings runtime_agrees(const Subject&);
/// An op with attributes tells them to readers: each has a name of its own.
Findings attributes_are_told(const Subject&);
/// Forward and backward write all of their outputs, nothing beside them, and leave the operands as they are.
Findings memory_is_respected(const Subject&);
/// Error inputs throw, with the words they must.
Findings refusals_say_why(const Subject&);

}  // namespace everyo_test::contract
