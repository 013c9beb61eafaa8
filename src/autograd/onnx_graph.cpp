#include "everyo/onnx_graph.h"

namespace everyo::inline v1::onnx {

Values Graph::node_of(std::string type, Values inputs, const std::vector<Spec>& outputs,
                      std::vector<Attribute> attributes) {
  Node node{std::move(type), {}, {}, std::move(attributes), scope};
  for (Value& input : inputs) node.inputs.push_back(std::move(input.name));
  Values values;
  const std::string prefix = (scope.empty() ? "" : scope + "/") + node.type + "_";
  for (const Spec& spec : outputs) {
    values.push_back({prefix + std::to_string(next_++), spec});
    node.outputs.push_back(values.back().name);
  }
  nodes.push_back(std::move(node));
  return values;
}

Value Graph::constant(const Tensor& value) {
  constants.push_back({(scope.empty() ? "" : scope + "/") + "constant_" + std::to_string(next_++), value.detach()});
  return {constants.back().name, value.spec()};
}

Value Graph::integers(const std::vector<std::int64_t>& values) {
  return constant(Tensor::from<std::int64_t>(values, {static_cast<std::int64_t>(values.size())}));
}

std::int64_t data_type_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32: return 1;
    case DType::uint8: return 2;
    case DType::int32: return 6;
    case DType::int64: return 7;
    case DType::boolean: return 9;
    case DType::float16: return 10;
    case DType::float64: return 11;
    case DType::bfloat16: return 16;
  }
  return 0;
}

}  // namespace everyo::inline v1::onnx
