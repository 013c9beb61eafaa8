#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/io.h"
#include "everyo/state.h"

// A state tree as JSON and tensors. Integers, booleans, text and finite numbers stand as themselves, and come back as
// they were: numbers always have a point or an exponent, integers never. What JSON lacks is an object of one entry
// whose name begins with '$': {"$number": "nan"}, {"$array": {"name": "model/0.weight", …}}; a map's own name of that
// kind gets a second '$'.
namespace everyo::io {

struct SplitState {
  nlohmann::json values;
  std::vector<NamedTensor> arrays;  ///< borrow the tree's bytes
};
/// Throws ValueError for text that is not UTF-8, and what StateArray::check throws.
SplitState split_state(const StateTree& state);

/// The way back. `what` begins the message of the FileError for values that are no such JSON, name an array that is not
/// there, or nest more than 64 deep.
StateTree join_state(const nlohmann::json& values, std::vector<NamedTensor> arrays, std::string_view what);

}  // namespace everyo::io
