#include "onnx/operator_structure.h"

#include <algorithm>

#include "onnx/messages.h"

namespace everyo::onnx_export {
namespace {

using onnx_file::AttributeProto;
using onnx_file::NodeProto;

const AttributeProto* find(const NodeProto& node, std::string_view name) {
  const auto found = std::ranges::find(node.attribute(), name, &AttributeProto::name);
  return found == node.attribute().end() ? nullptr : &*found;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Letters and one "..." at the most, as one operand of an Einsum has them.
bool is_term(std::string_view term) {
  if (const std::size_t dots = term.find("..."); dots != std::string_view::npos) {
    return std::ranges::all_of(term.substr(0, dots), is_letter) &&
           std::ranges::all_of(term.substr(dots + 3), is_letter);
  }
  return std::ranges::all_of(term, is_letter);
}

/// "bij,bjk->bik": at any other character ONNX Runtime looks for the end of the term and never finds it.
void check_equation(std::string equation, const Place& place) {
  const std::string words = base::printable(equation);
  std::erase(equation, ' ');
  std::string_view left = equation;
  bool right = true;
  if (const std::size_t arrow = left.find("->"); arrow != std::string_view::npos) {
    right = is_term(left.substr(arrow + 2));
    left = left.substr(0, arrow);
  }
  for (bool last = false; right && !last;) {
    const std::size_t comma = std::min(left.find(','), left.size());
    right = is_term(left.substr(0, comma));
    last = comma == left.size();
    if (!last) left.remove_prefix(comma + 1);
  }
  if (!right) place.fail(fmt::format("its equation is '{}'; terms of letters and at most one '...' are wanted", words));
}

}  // namespace

void check_operator(const NodeProto& node, const Place& place) {
  if (node.op_type() == "Einsum") {
    if (const AttributeProto* equation = find(node, "equation")) check_equation(equation->s(), place);
  }
  if (node.op_type() == "Split") {
    const AttributeProto* outputs = find(node, "num_outputs");
    const bool wrong = outputs != nullptr && outputs->ref_attr_name().empty() && outputs->i() != node.output_size();
    if (wrong) place.fail(fmt::format("its num_outputs is {}; it has {} outputs", outputs->i(), node.output_size()));
  }
}

}  // namespace everyo::onnx_export
