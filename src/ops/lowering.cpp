#include "ops/lowering.h"

#include <string_view>

namespace everyo::inline v1 {

onnx::Value lower_cast(onnx::Graph& g, const onnx::Value& v, DType dtype) {
  if (v.spec.dtype == dtype) return v;
  return g.node("Cast", {v}, {dtype, v.spec.shape}, {{"to", onnx::data_type_of(dtype)}});
}

onnx::Value lower_reduction(onnx::Graph& g, const char* type, const onnx::Value& x,
                            const std::vector<std::int64_t>& axes, bool keep_dims, const Shape& result) {
  const Spec spec{x.spec.dtype, result};
  if (axes.empty()) return g.node("Identity", {x}, spec);  // no axes would mean all of them
  const onnx::Attribute keep{"keepdims", std::int64_t{keep_dims}};
  if (g.opset >= 18 || type == std::string_view("ReduceSum")) return g.node(type, {x, g.integers(axes)}, spec, {keep});
  return g.node(type, {x}, spec, {{"axes", axes}, keep});
}

}  // namespace everyo::inline v1
