#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// What a call of an op was told beside its tensors, to be read: in a dump of a graph, in Python's Node.attributes.
namespace everyo::inline v1 {

/// monostate: not given, where that is a choice (axes of a reduction over all of them).
using AttributeValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;
struct Attribute {
  std::string_view name;  ///< of the op's record, as long as the program runs
  AttributeValue value;
};
using Attributes = std::vector<Attribute>;

}  // namespace everyo::inline v1
