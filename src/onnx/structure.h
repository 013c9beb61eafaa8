#pragma once
#include <string_view>

namespace everyo::onnx_file {
class ModelProto;
}

namespace everyo::onnx_export {

/// Throws FileError naming the first thing that is wrong with a model's structure; `what` begins the message,
/// "[run_onnx] 'model.onnx'".
void check_structure(const onnx_file::ModelProto& model, std::string_view what);

}  // namespace everyo::onnx_export
