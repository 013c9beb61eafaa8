#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/json.h"
#include "everyo/error.h"

namespace everyo::onnx_export {

/// Where in a model something is: "node 3 'conv1' (Conv), attribute 'pads'". Made on the way down, put into words only
/// when something is wrong.
struct Place {
  const Place* outer;     ///< none: the model itself
  std::string_view kind;  ///< "node", "initializer"
  std::string_view name;
  std::int64_t index = -1;        ///< -1: none
  std::string_view op_type = {};  ///< of a node

  [[nodiscard]] Place inner(std::string_view inner_kind, std::string_view inner_name, std::int64_t inner_index = -1,
                            std::string_view inner_op_type = {}) const {
    return {this, inner_kind, inner_name, inner_index, inner_op_type};
  }
  [[nodiscard]] std::string words() const {
    std::string text;
    const Place* at = this;
    for (int shown = 0; at->outer != nullptr && shown < 4; at = at->outer, ++shown) {
      std::string own{at->kind};
      if (at->index >= 0) own += fmt::format(" {}", at->index);
      if (!at->name.empty()) own += fmt::format(" '{}'", base::printable(at->name));
      if (!at->op_type.empty()) own += fmt::format(" ({})", base::printable(at->op_type, 40));
      text = text.empty() ? own : own + ", " + text;
    }
    return at->outer == nullptr ? text : "…, " + text;
  }
  /// Throws FileError: "WHAT: PLACE: WHY".
  [[noreturn]] void fail(std::string_view why) const {
    const Place* top = this;
    while (top->outer != nullptr) top = top->outer;
    const std::string place = words();
    throw FileError(fmt::format("{}: {}{}{}", top->name, place, place.empty() ? "" : ": ", why));
  }
};

}  // namespace everyo::onnx_export
