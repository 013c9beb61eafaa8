#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "everyo/error.h"
#include "everyo/onnx.h"
#include "onnx/messages.h"
#include "onnx/session.h"
#include "onnx/structure.h"
#include "support/temporary_folder.h"

// Models made of the format's messages by hand.
namespace everyo::hand_built {

using onnx_file::AttributeProto;
using onnx_file::GraphProto;
using onnx_file::ModelProto;
using onnx_file::NodeProto;
using onnx_file::TensorProto;
using onnx_file::ValueInfoProto;

/// A size, or the name of an open one; "": open without a name.
using Size = std::variant<std::int64_t, std::string>;

inline void describe(ValueInfoProto& info, std::string_view name, DType dtype, const std::vector<Size>& sizes) {
  info.set_name(std::string(name));
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx_runtime::element_of_dtype(dtype));
  tensor->mutable_shape();
  for (const Size& size : sizes) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (const auto* fixed = std::get_if<std::int64_t>(&size)) dim->set_dim_value(*fixed);
    if (const auto* open = std::get_if<std::string>(&size); open != nullptr && !open->empty())
      dim->set_dim_param(*open);
  }
}

inline void fill(TensorProto& to, std::string_view name, const Tensor& values) {
  to.set_name(std::string(name));
  to.set_data_type(onnx_runtime::element_of_dtype(values.dtype()));
  for (const std::int64_t size : values.shape().sizes()) to.add_dims(size);
  to.set_raw_data(reinterpret_cast<const char*>(values.bytes()), values.spec().bytes());
}

class Model {
 public:
  explicit Model(int opset = 17) {
    message.set_ir_version(8);
    message.add_opset_import()->set_version(opset);
    graph().set_name("graph");
  }
  GraphProto& graph() { return *message.mutable_graph(); }
  Model& input(std::string_view name, DType dtype, const std::vector<Size>& sizes) {
    describe(*graph().add_input(), name, dtype, sizes);
    return *this;
  }
  Model& output(std::string_view name, DType dtype, const std::vector<Size>& sizes) {
    describe(*graph().add_output(), name, dtype, sizes);
    return *this;
  }
  Model& initializer(std::string_view name, const Tensor& values) {
    fill(*graph().add_initializer(), name, values);
    return *this;
  }
  NodeProto& node(std::string_view op_type, std::initializer_list<std::string_view> inputs,
                  std::initializer_list<std::string_view> outputs) {
    NodeProto& made = *graph().add_node();
    made.set_op_type(std::string(op_type));
    made.set_name(std::string(op_type) + "_node");
    for (const std::string_view name : inputs) made.add_input(std::string(name));
    for (const std::string_view name : outputs) made.add_output(std::string(name));
    return made;
  }
  [[nodiscard]] std::string bytes() const { return message.SerializeAsString(); }

  ModelProto message;
};

inline AttributeProto& attribute(NodeProto& node, std::string_view name, AttributeProto::AttributeType type) {
  AttributeProto& made = *node.add_attribute();
  made.set_name(std::string(name));
  made.set_type(type);
  return made;
}

/// relu(x @ w + b) of x (batch, 3): (batch, 2).
inline Model small_net() {
  Model model;
  model.input("x", float32, {"batch", 3}).output("y", float32, {"batch", 2});
  model.initializer("w", Tensor::from<float>({1, -2, 3, 4, -5, 6}, {3, 2}));
  model.initializer("b", Tensor::from<float>({0.5F, -0.25F}));
  model.node("Gemm", {"x", "w", "b"}, {"z"});
  model.node("Relu", {"z"}, {"y"});
  return model;
}

/// What check_structure says of the small net after a change; "" for one it takes.
inline std::string refusal(const std::function<void(Model&)>& change) {
  Model model = small_net();
  change(model);
  try {
    (void)onnx_export::check_structure(model.message, "[test] 'm'");
  } catch (const FileError& error) {
    return error.what();
  }
  return {};
}

/// A test with a folder to write models into.
class Files : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path write(std::string_view content, const std::string& name = "model.onnx") const {
    const std::filesystem::path path = folder.path() / name;
    std::filesystem::remove(path);  // some file systems write at once what takes the place of old content
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }
  [[nodiscard]] std::filesystem::path write(const Model& model, const std::string& name = "model.onnx") const {
    return write(model.bytes(), name);
  }
  TemporaryFolder folder;
};

/// The words of the error that `call` throws, which is an E; else a failure.
template <class E, class F>
std::string words_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace everyo::hand_built
