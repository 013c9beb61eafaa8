#pragma once
#include <filesystem>
#include <string_view>

namespace everyo::onnx_file {
class ModelProto;
}

namespace everyo::onnx_export {

/// Reads a file's message. Throws FileError for a file that cannot be read, has more bytes than a message can, or is
/// none; `what` begins the message. What the message says is left unchecked.
void read_model(onnx_file::ModelProto& model, const std::filesystem::path& path, std::string_view what);

}  // namespace everyo::onnx_export
