#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace everyo::onnx_file {
class ModelProto;
}

namespace everyo::onnx_export {

/// Where a tensor's values lie in another file.
struct ExternalData {
  std::string tensor, location;  ///< the file's path from the model's folder on, which stays inside that folder
  std::uint64_t offset = 0, bytes = 0;
};

/// Throws FileError naming the first thing that is wrong with a model's structure; `what` begins the message,
/// "[run_onnx] 'model.onnx'". Gives the tensors that lie elsewhere.
std::vector<ExternalData> check_structure(const onnx_file::ModelProto& model, std::string_view what);

}  // namespace everyo::onnx_export
