#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/onnx.h"

struct OrtSession;

namespace everyo::onnx_runtime {

struct Runtime;

/// A model in ONNX Runtime. Threads may run it at once.
class Session {
 public:
  /// Throws StateError as load() does; FileError for a model that the runtime does not take, which begins with `what`.
  Session(const OnnxRuntimeOptions& options, const std::filesystem::path& model, std::string_view what);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  struct Input {
    const char* name;
    Tensor value;
  };
  /// The outputs of these names. Inputs are read where they lie. Throws StateError (backend) with the runtime's words.
  [[nodiscard]] std::vector<Tensor> run(std::span<const Input> inputs, std::span<const char* const> outputs,
                                        std::string_view what) const;

 private:
  const Runtime* runtime_;
  std::unique_ptr<OrtSession, void (*)(OrtSession*)> session_;
  int process_;
};

/// The dtype of one of the format's element types, if it is one of ours.
std::optional<DType> dtype_of_element(std::int32_t element_type) noexcept;
std::int32_t element_of_dtype(DType dtype) noexcept;
/// What messages call an element type: "int8".
std::string name_of_element(std::int32_t element_type);

}  // namespace everyo::onnx_runtime
