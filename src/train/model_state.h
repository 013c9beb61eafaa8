#pragma once
#include "everyo/nn.h"
#include "everyo/state.h"

// A model's values in a state, and the way back.
namespace everyo::train {

/// A copy of the model's values by name.
StateTree state_of(const ModuleBase& model);
/// The tensors of such a tree; they borrow its bytes. Throws StateError for a shard.
StateDict state_dict_of(const StateTree& tree);

}  // namespace everyo::train
