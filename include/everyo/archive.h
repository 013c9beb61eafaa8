#pragma once
#include <filesystem>
#include <string>

#include "everyo/io.h"

// `.evo` archives: how the earlier library of this name kept a model and its architecture. A ZIP archive of
// manifest.json and parameters.npz; no code, no pickle.
namespace everyo::inline v1 {

struct ModelArchive {
  std::string class_name{};               ///< of the module
  std::string config = "{}";              ///< arguments that make it again: a JSON object
  std::vector<NamedTensor> parameters{};  ///< its state, in order
  std::string metadata = "{}";            ///< what the user put beside it: a JSON object
  std::string everyo_version{};           ///< that wrote it; this one's when it is saved
  std::string created_at{};               ///< ISO 8601; now when it is saved empty
};

/// Writes such an archive, replaced at once. Throws FileError "already exists" unless `overwrite`, ValueError for a
/// name given twice or a config or metadata that is no JSON object, StateError for a tensor without values, DTypeError
/// for bfloat16, which NumPy does not know.
EVERYO_API void save_archive(const std::filesystem::path& path, const ModelArchive& archive, bool overwrite = true);

/// Reads one. At most 64 MiB and 1100 bytes for each of the file's are unpacked. Throws FileError for a file that is
/// "not found", "is not a valid" archive, is damaged, or has a newer format version than 1.
EVERYO_API ModelArchive load_archive(const std::filesystem::path& path);

}  // namespace everyo::inline v1
