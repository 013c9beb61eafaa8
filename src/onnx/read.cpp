#include "onnx/read.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <limits>

#include "base/files.h"
#include "everyo/error.h"
#include "onnx/messages.h"

namespace everyo::onnx_export {

void read_model(onnx_file::ModelProto& model, const std::filesystem::path& path, std::string_view what) {
  constexpr std::uint64_t most_bytes = std::numeric_limits<std::int32_t>::max();  // of a message
  const base::InputFile file(path);
  if (file.size() > most_bytes) {
    throw FileError(
        fmt::format("{}: it has {} bytes; an ONNX file has at most {}, and larger weights lie in a file beside it",
                    what, file.size(), most_bytes));
  }
  google::protobuf::io::FileInputStream stream(file.descriptor());
  // The bound keeps a length that is larger than the file from taking memory. Messages nest up to protobuf's 100.
  if (!model.ParseFromBoundedZeroCopyStream(&stream, static_cast<int>(file.size())) || stream.GetErrno() != 0) {
    throw FileError(fmt::format("{}: its {} bytes are no ONNX model; it is cut short, damaged, or another kind of file",
                                what, file.size()));
  }
}

}  // namespace everyo::onnx_export
