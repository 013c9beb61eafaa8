#include "cli/run_folder.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "everyo/error.h"
#include "everyo/io.h"

namespace cli {
namespace {

constexpr const char *config_name = "config.json", *metrics_name = "metrics.jsonl";
constexpr std::chrono::seconds between_checkpoints{10};

// The lines of whole epochs up to this one; a line that was cut short is none.
std::vector<std::string> rows_of(const std::filesystem::path& file, std::int64_t epochs) {
  std::vector<std::string> rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("epoch") || !row["epoch"].is_number_integer()) break;
    if (row["epoch"].get<std::int64_t>() > epochs) break;
    rows.push_back(line);
  }
  return rows;
}

}  // namespace

everyo::CheckpointStore RunFolder::checkpoints(const std::filesystem::path& path) {
  return everyo::CheckpointStore(path / "checkpoints", {.keep_last = 2});
}

RunFolder::RunFolder(std::filesystem::path path, bool resumed, std::int64_t epochs_done)
    : path_(std::move(path)), store_(checkpoints(path_)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (!error) std::filesystem::remove(path_ / config_name, error);
  if (!error && !resumed) std::filesystem::remove_all(store_.folder(), error);
  if (error) throw everyo::FileError(fmt::format("--out {}: cannot be used: {}", path_.string(), error.message()));
  const std::vector<std::string> kept =
      resumed ? rows_of(path_ / metrics_name, epochs_done) : std::vector<std::string>();
  metrics_.open(path_ / metrics_name, std::ios::trunc);
  for (const std::string& row : kept) metrics_ << row << '\n';
  metrics_ << std::flush;
  check(metrics_, metrics_name);
}

void RunFolder::add_metrics(const everyo::EpochMetrics& m) {
  const nlohmann::json row = {{"epoch", m.epoch},
                              {"samples", m.samples},
                              {"loss", m.loss},
                              {"accuracy", m.accuracy},
                              {"learning_rate", m.learning_rate},
                              {"seconds", m.seconds},
                              {"samples_per_second", m.samples_per_second}};
  metrics_ << row.dump() << '\n' << std::flush;
  check(metrics_, metrics_name);
}

bool RunFolder::is_time() const { return std::chrono::steady_clock::now() - last_save_ >= between_checkpoints; }

void RunFolder::save_checkpoint(const everyo::StateTree& state, std::int64_t step) {
  store_.save(state, step);
  last_save_ = std::chrono::steady_clock::now();
}

void RunFolder::finish(const everyo::ModuleBase& model, const nlohmann::json& config) {
  everyo::save_safetensors(path_ / "model.safetensors", model.state_dict());
  const std::filesystem::path unfinished = path_ / fmt::format("{}.part", config_name);
  std::ofstream file(unfinished, std::ios::trunc);
  file << config.dump(2) << '\n' << std::flush;
  check(file, config_name);
  std::filesystem::rename(unfinished, path_ / config_name);
}

void RunFolder::check(const std::ofstream& file, std::string_view name) const {
  if (!file) throw everyo::FileError(fmt::format("--out {}: {} cannot be written", path_.string(), name));
}

}  // namespace cli
