#pragma once
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "everyo/checkpoint.h"
#include "everyo/nn.h"
#include "everyo/train.h"

namespace cli {

/// The folder of a run. settings.json says what was asked for, metrics.jsonl grows a line an epoch, digests.jsonl, if
/// it is asked for, a line a step, checkpoints/ holds
/// where the run stands; model.safetensors, then config.json come at the end, so a folder with a config.json holds a
/// whole run and one without it a run that stopped and can be resumed.
class RunFolder {
 public:
  /// What an earlier run left there is no record of this one: only `resumed` keeps its metrics, up to and with
  /// `epochs_done`. Throws FileError.
  RunFolder(std::filesystem::path path, bool resumed, std::int64_t epochs_done);

  /// What --config takes to make the run again.
  void save_settings(const nlohmann::json& settings);
  void add_metrics(const everyo::EpochMetrics& row);
  /// From here on digests.jsonl grows a line a step, after those up to `steps_done` that are there already.
  void keep_digests(std::int64_t steps_done);
  void add_digest(const everyo::StepDigest& digest);
  /// Whether the last checkpoint is ten seconds old.
  [[nodiscard]] bool is_time() const;
  void save_checkpoint(const everyo::StateTree& state, std::int64_t step, bool is_best);
  void finish(const everyo::ModuleBase& model, const nlohmann::json& config);

  /// Whether a run stopped there, with a whole checkpoint to go on from.
  static bool is_unfinished(const std::filesystem::path& path);
  /// Whether a run there keeps the digests of its steps.
  static bool has_digests(const std::filesystem::path& path);
  static std::filesystem::path digests(const std::filesystem::path& path) { return path / "digests.jsonl"; }
  /// Where a run's checkpoints lie: the last two, and the best.
  static everyo::CheckpointStore checkpoints(const std::filesystem::path& path);

 private:
  void check_metrics() const;

  std::filesystem::path path_;
  everyo::CheckpointStore store_;
  std::ofstream metrics_, digests_;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
};

}  // namespace cli
