#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/files.h"
#include "onnx/symbols.h"

namespace everyo::onnx_file {
class ModelProto;
}

// A graph as the messages and bytes of a file.
namespace everyo::onnx_export {

/// What the file says beside its nodes.
struct Signature {
  Symbols symbols;
  OutputExtents outputs;
};

/// Weights that lie in a second file: where each begins there.
struct ExternalWeights {
  std::string file;  ///< its name, beside the model's
  std::map<std::string, std::uint64_t> offsets;
};

/// The message of a graph.
void fill(onnx_file::ModelProto& model, const LoweredGraph& lowered, const Signature& signature,
          const OnnxOptions& options, const ExternalWeights& external);

/// A file in the making: whole at temporary(), and at its own name after put_in_place(). Gone again otherwise, with the
/// second file that it may have.
class ModelFile {
 public:
  /// Checks the message's structure, too. Throws FileError.
  ModelFile(const std::filesystem::path& path, const LoweredGraph& lowered, const Signature& signature,
            const OnnxOptions& options);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  [[nodiscard]] const std::filesystem::path& temporary() const { return file_.temporary(); }
  [[nodiscard]] const std::optional<std::filesystem::path>& data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  void put_in_place();

 private:
  ExternalWeights write_weights(const std::filesystem::path& path, const LoweredGraph& lowered);

  base::OutputFile file_;
  std::optional<std::filesystem::path> data_;
  bool new_data_ = false, in_place_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace everyo::onnx_export
