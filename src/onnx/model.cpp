#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/json.h"
#include "everyo/error.h"
#include "everyo/onnx.h"
#include "everyo/ops.h"
#include "onnx/messages.h"
#include "onnx/read.h"
#include "onnx/runtime.h"
#include "onnx/session.h"
#include "onnx/structure.h"

namespace everyo::inline v1 {
namespace {

namespace fs = std::filesystem;
using onnx_file::ModelProto;
using onnx_file::TypeProto;
using onnx_file::ValueInfoProto;
using onnx_runtime::Session;

std::string_view kind_of(const TypeProto& type) {
  switch (type.value_case()) {
    case TypeProto::kSequenceType: return "a sequence";
    case TypeProto::kMapType: return "a map";
    case TypeProto::kOptionalType: return "an optional value";
    case TypeProto::kSparseTensorType: return "a sparse tensor";
    default: return "of a kind unknown here";
  }
}

/// What the file says of an input or output; `what` begins the message of the FileError for one that is no tensor of
/// ours.
OnnxValue value_of(const ValueInfoProto& info, std::string_view role, std::string_view what) {
  const auto refuse = [&](std::string_view why) {
    throw FileError(fmt::format("{}: {} '{}' is {}", what, role, base::printable(info.name()), why));
  };
  if (!info.type().has_tensor_type())
    refuse(fmt::format("{}; only tensors are taken and given here", kind_of(info.type())));
  const TypeProto::Tensor& tensor = info.type().tensor_type();
  const std::optional<DType> dtype = onnx_runtime::dtype_of_element(tensor.elem_type());
  if (!dtype) {
    refuse(fmt::format(
        "of type {}; float32, float64, float16, bfloat16, int64, int32, uint8 and bool are taken and given here",
        onnx_runtime::name_of_element(tensor.elem_type())));
  }
  if (tensor.shape().dim_size() > Shape::max_rank) {
    refuse(fmt::format("of {} axes; {} are the most", tensor.shape().dim_size(), Shape::max_rank));
  }
  OnnxValue value{.name = info.name(), .dtype = *dtype, .ranked = tensor.has_shape()};
  for (const auto& size : tensor.shape().dim()) {
    value.shape.push_back(size.has_dim_value() ? size.dim_value() : -1);
    value.sizes.push_back(size.dim_param());
  }
  return value;
}

/// "(batch, 3, ?)".
std::string shape_words(const OnnxValue& value) {
  std::string text;
  for (std::size_t i = 0; i < value.shape.size(); ++i) {
    const std::string open = value.sizes[i].empty() ? "?" : base::printable(value.sizes[i], 40);
    text += fmt::format("{}{}", i == 0 ? "" : ", ", value.shape[i] < 0 ? open : std::to_string(value.shape[i]));
  }
  return fmt::format("({}{})", text, value.shape.size() == 1 ? "," : "");
}

std::string names_of(const std::vector<OnnxValue>& values) {
  std::string text;
  for (const OnnxValue& value : values)
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", base::printable(value.name));
  return text.empty() ? "none" : text;
}

/// Throws FileError unless the files beside the model hold what it says they do.
void check_external(const std::vector<onnx_export::ExternalData>& external, const fs::path& model,
                    std::string_view what) {
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& data : external) {
    const auto [found, is_new] = sizes.try_emplace(data.location);
    if (is_new) found->second = base::InputFile(model.parent_path() / data.location).size();
    if (data.offset + data.bytes <= found->second) continue;
    throw FileError(fmt::format(
        "{}: '{}' has {} bytes, and initializer '{}' would end at {}; it is cut short, or another model's", what,
        base::printable(data.location), found->second, base::printable(data.tensor), data.offset + data.bytes));
  }
}

/// Whether numbers of one dtype may become the other without changing their kind.
bool converts(DType from, DType to) {
  if (is_floating(from)) return is_floating(to);
  return from != boolean && to != boolean;
}

/// What begins messages about a file.
std::string what_of(const fs::path& path) { return fmt::format("[run_onnx] '{}'", path.string()); }

/// Sizes that inputs have in common, with the input that gave each.
using SharedSizes = std::map<std::string_view, std::pair<std::int64_t, std::string_view>>;

void check_input(const OnnxValue& input, const Tensor& tensor, SharedSizes& shared) {
  const std::string what = fmt::format("[run_onnx] input '{}'", base::printable(input.name));
  if (!tensor.defined() || tensor.is_meta())
    throw StateError(fmt::format("{} has no data; give a tensor with values", what));
  if (tensor.dtype() != input.dtype) {
    throw DTypeError(fmt::format("{} is {}; the file takes {}", what, name_of(tensor.dtype()), name_of(input.dtype)));
  }
  if (!input.ranked) return;
  const std::span<const std::int64_t> sizes = tensor.shape().sizes();
  const auto fits = [](std::int64_t size, std::int64_t wanted) { return wanted < 0 || size == wanted; };
  if (sizes.size() != input.shape.size() || !std::ranges::equal(sizes, input.shape, fits)) {
    throw ShapeError(
        fmt::format("{} has shape {}; the file takes {}", what, to_string(tensor.shape()), shape_words(input)));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (input.shape[i] >= 0 || input.sizes[i].empty()) continue;
    const auto& [size, giver] = shared.try_emplace(input.sizes[i], sizes[i], input.name).first->second;
    if (size == sizes[i]) continue;
    throw ShapeError(fmt::format("{} has {} as its size '{}', input '{}' {}; sizes of one name are equal", what,
                                 sizes[i], base::printable(input.sizes[i]), base::printable(giver), size));
  }
}

}  // namespace

OnnxDescription describe_onnx(const fs::path& path) {
  const std::string what = what_of(path);
  ModelProto model;
  onnx_export::read_model(model, path, what);
  check_external(onnx_export::check_structure(model, what), path, what);
  const onnx_file::GraphProto& graph = model.graph();
  std::set<std::string_view> given;  // inputs with a default
  for (const auto& tensor : graph.initializer()) given.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) given.insert(tensor.values().name());
  OnnxDescription file;
  for (const ValueInfoProto& input : graph.input()) {
    if (!given.contains(input.name())) file.inputs.push_back(value_of(input, "input", what));
  }
  for (const ValueInfoProto& output : graph.output()) file.outputs.push_back(value_of(output, "output", what));
  for (const auto& entry : model.metadata_props()) file.metadata.emplace_back(entry.key(), entry.value());
  return file;
}

struct OnnxModel::State {
  std::string what;  // begins messages
  OnnxDescription file;
  std::vector<const char*> output_names;
  std::optional<Session> session;

  explicit State(const fs::path& path) : what(what_of(path)), file(describe_onnx(path)) {
    for (const OnnxValue& output : file.outputs) output_names.push_back(output.name.c_str());
  }
};

OnnxModel::OnnxModel(const fs::path& path, const OnnxRuntimeOptions& options) : state_(std::make_unique<State>(path)) {
  state_->session.emplace(options, path, state_->what);
}
OnnxModel::OnnxModel(OnnxModel&&) noexcept = default;
OnnxModel& OnnxModel::operator=(OnnxModel&&) noexcept = default;
OnnxModel::~OnnxModel() = default;

const std::vector<OnnxValue>& OnnxModel::inputs() const noexcept { return state_->file.inputs; }
const std::vector<OnnxValue>& OnnxModel::outputs() const noexcept { return state_->file.outputs; }
const std::vector<std::pair<std::string, std::string>>& OnnxModel::metadata() const noexcept {
  return state_->file.metadata;
}

NamedTensors OnnxModel::run(const NamedTensors& inputs) const {
  const std::vector<OnnxValue>& wanted = state_->file.inputs;
  std::map<std::string_view, const Tensor*> given;
  for (const auto& [name, tensor] : inputs) {
    if (!given.emplace(name, &tensor).second) {
      throw ValueError(fmt::format("[run_onnx] input '{}' is given twice", base::printable(name)));
    }
    if (std::ranges::find(wanted, name, &OnnxValue::name) != wanted.end()) continue;
    throw ValueError(
        fmt::format("[run_onnx] the file has no input '{}'; it has {}", base::printable(name), names_of(wanted)));
  }
  std::vector<Session::Input> values;
  SharedSizes shared;
  for (const OnnxValue& input : wanted) {
    const auto found = given.find(input.name);
    if (found == given.end()) {
      throw ValueError(fmt::format("[run_onnx] input '{}' is missing; the file takes {}", base::printable(input.name),
                                   names_of(wanted)));
    }
    check_input(input, *found->second, shared);
    values.push_back({input.name.c_str(), *found->second});
  }
  std::vector<Tensor> results = state_->session->run(values, state_->output_names, state_->what);
  NamedTensors outputs;
  for (std::size_t i = 0; i < results.size(); ++i)
    outputs.emplace_back(state_->file.outputs[i].name, std::move(results[i]));
  return outputs;
}

NamedTensors OnnxModel::convert(const NamedTensors& inputs) const {
  const NoGrad no_grad;
  NamedTensors converted;
  for (const auto& [name, tensor] : inputs) {
    const auto input = std::ranges::find(state_->file.inputs, name, &OnnxValue::name);
    const bool fits = input == state_->file.inputs.end() || !tensor.defined() || tensor.dtype() == input->dtype ||
                      !converts(tensor.dtype(), input->dtype);
    converted.emplace_back(name, fits ? tensor : cast(tensor, input->dtype));
  }
  return converted;
}

NamedTensors run_onnx(const fs::path& path, const NamedTensors& inputs, const OnnxRuntimeOptions& options) {
  return OnnxModel(path, options).run(inputs);
}

bool onnx_available(const OnnxRuntimeOptions& options) noexcept {
  try {
    onnx_runtime::load(options);
    return true;
  } catch (...) {
    return false;
  }
}

std::string onnx_runtime_version(const OnnxRuntimeOptions& options) {
  const onnx_runtime::Runtime& runtime = onnx_runtime::load(options);
  return fmt::format("{} ({})", runtime.version, runtime.path);
}

}  // namespace everyo::inline v1
