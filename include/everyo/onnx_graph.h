#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "everyo/tensor.h"

/// The plain-data graph that op records lower into. What a file needs beyond it is the exporter's.
namespace everyo::inline v1::onnx {

/// One edge of the graph: its name, and what is known of it.
struct Value {
  std::string name;
  Spec spec;
};
using Values = std::vector<Value>;

using AttributeValue = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>>;
struct Attribute {
  std::string name;
  AttributeValue value;
};

struct Node {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;
  std::string scope;  ///< path of the module whose forward made it
};

struct Constant {
  std::string name;
  Tensor value;
};

struct Graph {
  int opset = 17;
  std::vector<Node> nodes;
  std::vector<Constant> constants;
  std::string scope;

  /// Adds a node with one output of `spec`; an input with an empty name is left out.
  Value node(std::string type, Values inputs, Spec spec, std::vector<Attribute> attributes = {}) {
    return node_of(std::move(type), std::move(inputs), {spec}, std::move(attributes))[0];
  }
  /// Adds a node with several outputs.
  EVERYO_API Values node_of(std::string type, Values inputs, const std::vector<Spec>& outputs,
                            std::vector<Attribute> attributes = {});
  /// Adds a constant.
  EVERYO_API Value constant(const Tensor& value);
  /// A constant int64 vector, as Reshape, Slice and the reductions take it.
  EVERYO_API Value integers(const std::vector<std::int64_t>& values);

 private:
  int next_ = 0;
};

/// The TensorProto.DataType number of a dtype (onnx.proto3).
EVERYO_API std::int64_t data_type_of(DType dtype) noexcept;

}  // namespace everyo::inline v1::onnx
