#pragma once
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "everyo/tensor.h"

// Files that hold tensors. Every reading function treats its file as hostile: nothing is allocated before the sizes
// that the file claims are known to lie inside it. A file that is missing throws FileError of kind file_not_found; one
// that is damaged, or not what it claims to be, FileError.
namespace everyo::inline v1 {

using NamedTensor = std::pair<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

/// Writes tensors as a safetensors file (https://github.com/huggingface/safetensors), the same bytes as that format's
/// own library writes. The file is replaced at once: a crash leaves the old one or the new one. Throws ValueError for a
/// name given twice or reserved, or text that is not UTF-8, StateError for a tensor without data.
EVERYO_API void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                                 const Metadata& metadata = {});

/// What a safetensors file holds.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  ///< in the order in which the file stores them, not that in which they were given
  Metadata metadata;
};
/// Reads tensors of all eight dtypes, also inside a MetaScope. Other dtypes of the format throw FileError.
EVERYO_API SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// Makes or replaces a text file at once: after a crash or on a full disk it is the old one or the new one, whole.
/// Throws FileError.
EVERYO_API void save_text(const std::filesystem::path& path, std::string_view text);

/// SHA-256 of tensors as 64 hexadecimal digits: of each in order its name, dtype and shape as text, with a zero byte
/// after each, and its elements' bytes, little-endian. Equal digests mean equal bits.
/// Throws ValueError for a name with a zero byte, StateError for a tensor without data.
EVERYO_API std::string digest(std::span<const NamedTensor> tensors);

}  // namespace everyo::inline v1
