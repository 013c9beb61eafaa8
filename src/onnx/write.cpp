#include "onnx/write.h"

#include <fmt/format.h>

#include <limits>

#include "base/digest.h"
#include "onnx/messages.h"
#include "onnx/structure.h"

namespace everyo::onnx_export {
namespace {

// The lowest IR version whose standard operators reach that far (the table of versions in ONNX's documentation).
int ir_version_of(int opset) {
  if (opset < 15) return 7;
  if (opset < 19) return 8;
  return opset < 21 ? 9 : 10;
}

// In the second file, so that weights may be mapped from there; small ones stay in the message.
constexpr std::uint64_t page = 4096, small_weight = 1024;
// A message's length is a 32-bit number.
constexpr std::size_t most_message_bytes = std::numeric_limits<std::int32_t>::max();

void describe(onnx_file::AttributeProto& message, const onnx::Attribute& attribute) {
  using Proto = onnx_file::AttributeProto;
  message.set_name(attribute.name);
  if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
    message.set_type(Proto::INT);
    message.set_i(*number);
  } else if (const auto* real = std::get_if<float>(&attribute.value)) {
    message.set_type(Proto::FLOAT);
    message.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    message.set_type(Proto::STRING);
    message.set_s(*text);
  } else {
    message.set_type(Proto::INTS);
    for (const std::int64_t value : std::get<std::vector<std::int64_t>>(attribute.value)) message.add_ints(value);
  }
}

void describe(onnx_file::NodeProto& message, const onnx::Node& node, int index) {
  message.set_op_type(node.type);
  message.set_name(fmt::format("{}{}{}_{}", node.scope, node.scope.empty() ? "" : "/", node.type, index));
  for (const std::string& name : node.inputs) message.add_input(name);
  for (const std::string& name : node.outputs) message.add_output(name);
  for (const onnx::Attribute& attribute : node.attributes) describe(*message.add_attribute(), attribute);
}

std::string_view bytes_of(const Tensor& value) {
  return {reinterpret_cast<const char*>(value.bytes()), value.spec().bytes()};
}

void describe(onnx_file::TensorProto& message, const onnx::Constant& constant, const ExternalWeights& external) {
  message.set_name(constant.name);
  message.set_data_type(static_cast<std::int32_t>(onnx::data_type_of(constant.value.dtype())));
  for (const std::int64_t size : constant.value.shape().sizes()) message.add_dims(size);
  const auto outside = external.offsets.find(constant.name);
  if (outside == external.offsets.end()) {
    message.set_raw_data(std::string(bytes_of(constant.value)));
    return;
  }
  message.set_data_location(onnx_file::TensorProto::EXTERNAL);
  const auto say = [&](const char* key, std::string value) {
    auto& entry = *message.add_external_data();
    entry.set_key(key);
    entry.set_value(std::move(value));
  };
  say("location", external.file);
  say("offset", std::to_string(outside->second));
  say("length", std::to_string(constant.value.spec().bytes()));
}

// `size_of(axis, dimension)` says the size or its name.
template <class F>
void describe(onnx_file::ValueInfoProto& message, const onnx::Value& value, F&& size_of) {
  message.set_name(value.name);
  auto& type = *message.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<std::int32_t>(onnx::data_type_of(value.spec.dtype)));
  type.mutable_shape();  // a scalar has one, too
  for (std::int64_t axis = 0; axis < value.spec.shape.rank(); ++axis) size_of(axis, *type.mutable_shape()->add_dim());
}

}  // namespace

void fill(onnx_file::ModelProto& model, const LoweredGraph& lowered, const Signature& signature,
          const OnnxOptions& options, const ExternalWeights& external) {
  using Dimension = onnx_file::TensorShapeProto_Dimension;
  model.set_ir_version(ir_version_of(options.opset));
  auto& operators = *model.add_opset_import();
  operators.set_domain("");
  operators.set_version(options.opset);
  model.set_producer_name("everyo");
  model.set_producer_version(EVERYO_VERSION);
  for (const auto& [key, value] : options.metadata) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  auto& graph = *model.mutable_graph();
  graph.set_name(options.model_name);
  for (std::size_t i = 0; i < lowered.inputs.size(); ++i)
    describe(*graph.add_input(), lowered.inputs[i], [&](std::int64_t axis, Dimension& dimension) {
      const auto open = signature.symbols.of_axis.find({i, axis});
      if (open == signature.symbols.of_axis.end())
        dimension.set_dim_value(lowered.inputs[i].spec.shape[axis]);
      else
        dimension.set_dim_param(signature.symbols.list[open->second].name);
    });
  for (std::size_t i = 0; i < lowered.outputs.size(); ++i)
    describe(*graph.add_output(), lowered.outputs[i], [&](std::int64_t axis, Dimension& dimension) {
      const Extent& extent = signature.outputs[i][static_cast<std::size_t>(axis)];
      if (!extent.fixed())
        dimension.set_dim_param(extent.text(signature.symbols));
      else if (extent.constant >= 0)
        dimension.set_dim_value(extent.constant);
    });
  for (const onnx::Constant& constant : lowered.graph.constants) describe(*graph.add_initializer(), constant, external);
  for (const onnx::Node& node : lowered.graph.nodes) describe(*graph.add_node(), node, graph.node_size());
}

ModelFile::ModelFile(const std::filesystem::path& path, const LoweredGraph& lowered, const Signature& signature,
                     const OnnxOptions& options)
    : file_(path) {
  std::uint64_t weights = 0;
  for (const onnx::Constant& constant : lowered.graph.constants) weights += constant.value.spec().bytes();
  try {
    ExternalWeights external;
    if (weights > options.external_data_above) external = write_weights(path, lowered);
    onnx_file::ModelProto model;
    fill(model, lowered, signature, options, external);
    check_structure(model, fmt::format("[export_onnx] '{}'", path.string()));
    const std::size_t size = model.ByteSizeLong();
    if (size > most_message_bytes)
      throw FileError(
          fmt::format("[export_onnx] '{}' would have {} bytes in one message, which holds {}; lower "
                      "external_data_above, so that weights go into a second file",
                      path.string(), size, most_message_bytes));
    const std::string text = model.SerializeAsString();
    file_.write(0, std::as_bytes(std::span(text)));
    bytes_ += text.size();
  } catch (...) {
    if (new_data_) {
      std::error_code ignored;
      std::filesystem::remove(*data_, ignored);
    }
    throw;
  }
}

ModelFile::~ModelFile() {
  if (in_place_ || !new_data_) return;
  std::error_code ignored;
  std::filesystem::remove(*data_, ignored);
}

void ModelFile::put_in_place() {
  file_.put_in_place();
  in_place_ = true;
}

// The second file's name has the digest of its bytes, so that a model never meets the weights of another under it.
ExternalWeights ModelFile::write_weights(const std::filesystem::path& path, const LoweredGraph& lowered) {
  ExternalWeights external;
  base::Sha256 digest;
  std::uint64_t end = 0;
  for (const onnx::Constant& constant : lowered.graph.constants) {
    const std::string_view bytes = bytes_of(constant.value);
    if (bytes.size() < small_weight) continue;
    const std::uint64_t begin = (end + page - 1) / page * page;
    external.offsets[constant.name] = begin;
    digest.update(fmt::format("{}:{};", begin, bytes.size()));
    digest.update(bytes);
    end = begin + bytes.size();
  }
  if (external.offsets.empty()) return external;
  external.file = fmt::format("{}.{}.data", path.filename().string(), digest.finish().substr(0, 16));
  data_ = path.parent_path() / external.file;
  bytes_ += end;
  base::OutputFile data(*data_);
  for (const onnx::Constant& constant : lowered.graph.constants)
    if (const auto at = external.offsets.find(constant.name); at != external.offsets.end())
      data.write(at->second, std::as_bytes(std::span(bytes_of(constant.value))));
  new_data_ = !std::filesystem::exists(*data_);
  data.put_in_place();
  return external;
}

}  // namespace everyo::onnx_export
