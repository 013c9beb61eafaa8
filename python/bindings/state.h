#pragma once
#include "common.h"

// States of objects, and what the training loop takes from the library.
namespace everyo::python {

/// A state as nested dicts of numbers, words and NumPy arrays (tensors for bfloat16).
nb::object python_of(const StateTree& tree);
/// The way back. Throws FileError for a key that is no text, TypeError for values that are none of these.
StateTree tree_of(nb::handle value);

void bind_state(nb::module_& m);
void bind_train(nb::module_& m);

}  // namespace everyo::python
