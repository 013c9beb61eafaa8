#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "everyo/state.h"

// Checkpoints: folders that hold the whole state of a run, and are whole themselves at any moment.
namespace everyo::inline v1 {

/// Writes a state as a folder: its arrays as state.safetensors, then manifest.json with its other values, the size and
/// SHA-256 of each file, and its own SHA-256. The folder is made under another name, synced and renamed, so it is there
/// whole or not at all, after a crash or on a full disk, too. Throws FileError; StateError when `folder` exists.
EVERYO_API void save_state(const std::filesystem::path& folder, const StateTree& state);

/// The state of such a folder, every byte checked against the sums first. Throws FileError for one that is missing,
/// damaged, of another kind, or of a newer format version.
EVERYO_API StateTree load_state(const std::filesystem::path& folder);

struct CheckpointOptions {
  std::int64_t keep_last = 3;  ///< how many stay beside the best; 0: all
};

/// A checkpoint of a run that was found whole.
struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  StateTree state;
};

/// The checkpoints of one run in one folder: `step-000000120` and so on, `latest` and `best` with the name of one.
/// Nothing that is there is ever written over: a second checkpoint of a step gets a number of its own, and older ones
/// go only after the new one is safe.
class EVERYO_API CheckpointStore {
 public:
  /// Makes the folder when the first checkpoint is saved. Throws ValueError for keep_last below 0.
  explicit CheckpointStore(std::filesystem::path folder, const CheckpointOptions& options = {});

  /// Saves a state, moves `latest` (and, with `is_best`, `best`) to it, and removes what is more than keep_last; the
  /// folder. Throws FileError, and what was there before is whole then; ValueError for a negative step.
  std::filesystem::path save(const StateTree& state, std::int64_t step, bool is_best = false);

  /// What `latest` names; if that is not whole, the newest one that is, with a warning in the log for each that was
  /// passed over. Nothing when there is none.
  [[nodiscard]] std::optional<Checkpoint> load_latest() const;
  /// What `best` names, or nothing. Throws FileError when it is damaged.
  [[nodiscard]] std::optional<Checkpoint> load_best() const;

  /// The folder that `latest` or `best` names, whole or not; nothing without that file. Throws FileError when it names
  /// no checkpoint.
  [[nodiscard]] std::optional<std::filesystem::path> latest() const;
  [[nodiscard]] std::optional<std::filesystem::path> best() const;
  /// Folders of checkpoints, oldest first, whole or not.
  [[nodiscard]] std::vector<std::filesystem::path> list() const;
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;
  CheckpointOptions options_;
};

}  // namespace everyo::inline v1
