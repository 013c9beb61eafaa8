#include "onnx/session.h"

#include <fmt/format.h>
#include <onnxruntime/onnxruntime_c_api.h>
#include <onnxruntime/onnxruntime_session_options_config_keys.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "everyo/context.h"
#include "everyo/error.h"
#include "kernels/parallel.h"
#include "onnx/runtime.h"

namespace everyo::onnx_runtime {
namespace {

/// The format's element types by number, and ours among them; those above 16 are newer than the first opsets.
struct Element {
  std::string_view name;
  std::optional<DType> dtype{};
};
constexpr std::array<Element, 27> elements{{{"undefined"},
                                            {"float32", DType::float32},
                                            {"uint8", DType::uint8},
                                            {"int8"},
                                            {"uint16"},
                                            {"int16"},
                                            {"int32", DType::int32},
                                            {"int64", DType::int64},
                                            {"string"},
                                            {"bool", DType::boolean},
                                            {"float16", DType::float16},
                                            {"float64", DType::float64},
                                            {"uint32"},
                                            {"uint64"},
                                            {"complex64"},
                                            {"complex128"},
                                            {"bfloat16", DType::bfloat16},
                                            {"float8e4m3fn"},
                                            {"float8e4m3fnuz"},
                                            {"float8e5m2"},
                                            {"float8e5m2fnuz"},
                                            {"uint4"},
                                            {"int4"},
                                            {"float4e2m1"},
                                            {"float8e8m0"},
                                            {"uint2"},
                                            {"int2"}}};
static_assert(ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 == 16 && ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 == 22,
              "the runtime's numbers are the format's");

template <class T>
using Owner = std::unique_ptr<T, void (*)(T*)>;

/// Throws StateError with the words of a status, unless it is none.
void check(const OrtApi& api, OrtStatus* status, std::string_view what) {
  if (status == nullptr) return;
  throw StateError(fmt::format("{}: ONNX Runtime says: {}", what, words_of(api, status)), ErrorKind::backend);
}

Owner<OrtSessionOptions> session_options(const OrtApi& api, int threads, std::string_view what) {
  OrtSessionOptions* made = nullptr;
  check(api, api.CreateSessionOptions(&made), what);
  Owner<OrtSessionOptions> options(made, api.ReleaseSessionOptions);
  check(api, api.SetIntraOpNumThreads(made, threads), what);
  check(api, api.SetInterOpNumThreads(made, 1), what);
  // Whatever the file's name ends with: the runtime has a format of its own, too.
  check(api, api.AddSessionConfigEntry(made, kOrtSessionOptionsConfigLoadModelFormat, "ONNX"), what);
  return options;
}

/// The tensor's own memory as a value of the runtime's.
Owner<OrtValue> wrap(const OrtApi& api, const OrtMemoryInfo* memory, const Tensor& tensor, std::string_view what) {
  static std::byte nothing{};
  const std::span<const std::int64_t> sizes = tensor.shape().sizes();
  const std::size_t bytes = tensor.spec().bytes();
  OrtValue* made = nullptr;
  check(api,
        api.CreateTensorWithDataAsOrtValue(
            memory, bytes == 0 ? &nothing : tensor.bytes(), bytes, sizes.data(), sizes.size(),
            static_cast<ONNXTensorElementDataType>(element_of_dtype(tensor.dtype())), &made),
        what);
  return {made, api.ReleaseValue};
}

Spec spec_of(const OrtApi& api, const OrtValue* value, const char* name, std::string_view what) {
  const auto refuse = [&](std::string_view why) {
    throw StateError(fmt::format("{}: output '{}' is {}", what, name, why), ErrorKind::backend);
  };
  ONNXType kind = ONNX_TYPE_UNKNOWN;
  if (value != nullptr) check(api, api.GetValueType(value, &kind), what);
  if (kind != ONNX_TYPE_TENSOR) refuse("no tensor");
  OrtTensorTypeAndShapeInfo* made = nullptr;
  check(api, api.GetTensorTypeAndShape(value, &made), what);
  const Owner<OrtTensorTypeAndShapeInfo> info(made, api.ReleaseTensorTypeAndShapeInfo);
  ONNXTensorElementDataType element{};
  std::size_t rank = 0;
  check(api, api.GetTensorElementType(made, &element), what);
  check(api, api.GetDimensionsCount(made, &rank), what);
  const std::optional<DType> dtype = dtype_of_element(element);
  if (!dtype) refuse(fmt::format("of type {}, which no dtype here is", name_of_element(element)));
  if (rank > static_cast<std::size_t>(Shape::max_rank))
    refuse(fmt::format("of {} axes; {} are the most", rank, Shape::max_rank));
  std::array<std::int64_t, Shape::max_rank> sizes{};
  check(api, api.GetDimensions(made, sizes.data(), rank), what);
  return {*dtype, Shape(std::span<const std::int64_t>(sizes.data(), rank))};
}

Tensor copy_of(const OrtApi& api, OrtValue* value, const char* name, std::string_view what) {
  const Tensor tensor = Tensor::empty(spec_of(api, value, name, what));
  const std::span<std::byte> to(tensor.bytes(), tensor.spec().bytes());
  if (to.empty()) return tensor;
  void* from = nullptr;
  check(api, api.GetTensorMutableData(value, &from), what);
  std::memcpy(to.data(), from, to.size());
  // Any other byte would be no bool to the compiler.
  if (tensor.dtype() == boolean) std::ranges::for_each(to, [](std::byte& b) { b = std::byte{b != std::byte{0}}; });
  return tensor;
}

}  // namespace

std::optional<DType> dtype_of_element(std::int32_t element_type) noexcept {
  const auto index = static_cast<std::size_t>(element_type);
  return index < elements.size() ? elements[index].dtype : std::nullopt;
}

std::int32_t element_of_dtype(DType dtype) noexcept {
  return static_cast<std::int32_t>(std::ranges::find(elements, std::optional(dtype), &Element::dtype) -
                                   elements.begin());
}

std::string name_of_element(std::int32_t element_type) {
  const auto index = static_cast<std::size_t>(element_type);
  return index < elements.size() ? std::string(elements[index].name) : fmt::format("number {}", element_type);
}

Session::Session(const OnnxRuntimeOptions& options, const std::filesystem::path& model, std::string_view what)
    : runtime_(&load(options)), session_(nullptr, runtime_->api->ReleaseSession), process_(getpid()) {
  constexpr int most_threads = 1024;
  if (options.threads < 0 || options.threads > most_threads) {
    throw ValueError(
        fmt::format("[run_onnx] threads is {}; 0 (as many as kernels may use) to {}", options.threads, most_threads));
  }
  const OrtApi& api = *runtime_->api;
  const int threads = options.threads == 0 ? kernels::max_threads() : options.threads;
  const Owner<OrtSessionOptions> own = session_options(api, threads, what);
  OrtSession* made = nullptr;
  OrtStatus* const status = api.CreateSession(runtime_->environment, model.c_str(), own.get(), &made);
  session_.reset(made);
  if (status != nullptr) {
    throw FileError(
        fmt::format("{}: ONNX Runtime {} does not take it: {}", what, runtime_->version, words_of(api, status)));
  }
}

// In a forked process the runtime's threads are gone, and its end would wait for them: there the memory is left behind.
Session::~Session() {
  if (getpid() != process_) static_cast<void>(session_.release());
}

std::vector<Tensor> Session::run(std::span<const Input> inputs, std::span<const char* const> outputs,
                                 std::string_view what) const {
  if (getpid() != process_) {
    throw StateError(
        fmt::format("{}: the model was loaded before this process was forked, which has none of the runtime's "
                    "threads; load it here",
                    what));
  }
  const OrtApi& api = *runtime_->api;
  OrtMemoryInfo* made = nullptr;
  check(api, api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &made), what);
  const Owner<OrtMemoryInfo> memory(made, api.ReleaseMemoryInfo);
  std::vector<Owner<OrtValue>> owners;
  std::vector<const OrtValue*> given;
  std::vector<const char*> names;
  owners.reserve(inputs.size() + outputs.size());
  for (const Input& input : inputs) {
    owners.push_back(wrap(api, memory.get(), input.value, what));
    given.push_back(owners.back().get());
    names.push_back(input.name);
  }
  std::vector<OrtValue*> values(outputs.size());
  OrtStatus* const status = api.Run(session_.get(), nullptr, names.data(), given.data(), given.size(), outputs.data(),
                                    outputs.size(), values.data());
  for (OrtValue* const value : values) owners.emplace_back(value, api.ReleaseValue);
  check(api, status, what);
  const Scoped<&Context::meta> with_data(false);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) results.push_back(copy_of(api, values[i], outputs[i], what));
  return results;
}

}  // namespace everyo::onnx_runtime
