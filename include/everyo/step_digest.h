#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "everyo/nn.h"
#include "everyo/optim.h"

// The bits of a run after each step, so that two runs can be compared and their first difference named.
namespace everyo::inline v1 {

/// One tensor after a step.
struct TensorDigest {
  std::string name;    ///< the parameter's or buffer's, by its dotted path; "group 0" for what a group has
  std::string kind;    ///< "parameter", "buffer", "gradient", "learning_rate", or a state's name, such as "velocity"
  std::string digest;  ///< SHA-256 (io.h's digest) of it, the first 16 digits
  friend bool operator==(const TensorDigest&, const TensorDigest&) = default;
};
struct StepDigest {
  std::int64_t step = 0;  ///< from 1; one that was left out, since gradients overflowed, counts
  std::string digest;     ///< SHA-256 over names, kinds and whole digests of all tensors, 64 digits
  std::vector<TensorDigest> tensors;
};
using DigestSink = std::function<void(const StepDigest&)>;

/// Of a model and its optimizer as they are: parameters, buffers, gradients (those there are), the optimizer's state,
/// in the order of the model. Equal digests mean equal bits.
EVERYO_API StepDigest step_digest(ModuleBase& model, const Optimizer& optimizer, std::int64_t step);

}  // namespace everyo::inline v1
