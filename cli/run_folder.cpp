#include "cli/run_folder.h"

#include <fmt/format.h>

#include <string>

#include "everyo/error.h"
#include "everyo/io.h"

namespace cli {
namespace {

constexpr const char *config_name = "config.json", *metrics_name = "metrics.jsonl", *settings_name = "settings.json";
constexpr std::chrono::seconds between_checkpoints{10};

// The lines whose number (an epoch, a step) is up to `last`; a line that was cut short is none.
std::string rows_of(const std::filesystem::path& file, const char* number, std::int64_t last) {
  std::string rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains(number) || !row[number].is_number_integer()) break;
    if (row[number].get<std::int64_t>() > last) break;
    rows += line + '\n';
  }
  return rows;
}

std::string text_of(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

everyo::CheckpointStore RunFolder::checkpoints(const std::filesystem::path& path) {
  return everyo::CheckpointStore(path / "checkpoints", {.keep_last = 2});
}

bool RunFolder::is_unfinished(const std::filesystem::path& path) {
  std::error_code ignored;
  return !std::filesystem::exists(path / config_name, ignored) && checkpoints(path).load_latest().has_value();
}

RunFolder::RunFolder(std::filesystem::path path, bool resumed, std::int64_t epochs_done)
    : path_(std::move(path)), store_(checkpoints(path_)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (!error) std::filesystem::remove(path_ / config_name, error);
  if (!error && !resumed) std::filesystem::remove_all(store_.folder(), error);
  if (!error && !resumed) std::filesystem::remove(digests(path_), error);
  if (error) throw everyo::FileError(fmt::format("--out {}: cannot be used: {}", path_.string(), error.message()));
  everyo::save_text(path_ / metrics_name, resumed ? rows_of(path_ / metrics_name, "epoch", epochs_done) : "");
  metrics_.open(path_ / metrics_name, std::ios::app);
  check_metrics();
}

void RunFolder::save_settings(const nlohmann::json& settings) {
  everyo::save_text(path_ / settings_name, text_of(settings));
}

void RunFolder::add_metrics(const everyo::EpochMetrics& m) {
  nlohmann::json row = {{"epoch", m.epoch},
                        {"samples", m.samples},
                        {"loss", m.loss},
                        {"accuracy", m.accuracy},
                        {"learning_rate", m.learning_rate},
                        {"seconds", m.seconds},
                        {"samples_per_second", m.samples_per_second}};
  if (m.validation) {
    row["val_loss"] = m.validation->loss;
    row["val_accuracy"] = m.validation->accuracy;
    row["best"] = m.best;
  }
  if (m.scaling) {
    row["loss_scale"] = m.scaling->scale;
    row["skipped_steps"] = m.scaling->skipped;
    row["overflowed"] = m.scaling->overflowed;
  }
  metrics_ << row.dump() << '\n' << std::flush;
  check_metrics();
}

bool RunFolder::has_digests(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(digests(path), ignored);
}

void RunFolder::keep_digests(std::int64_t steps_done) {
  everyo::save_text(digests(path_), steps_done == 0 ? "" : rows_of(digests(path_), "step", steps_done));
  digests_.open(digests(path_), std::ios::app);
}

void RunFolder::add_digest(const everyo::StepDigest& of) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const auto& [name, kind, digest] : of.tensors) tensors.push_back({name, kind, digest});
  const nlohmann::json row{{"step", of.step}, {"digest", of.digest}, {"tensors", std::move(tensors)}};
  digests_ << row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
  if (!digests_)
    throw everyo::FileError(fmt::format("--out {}: {} cannot be written", path_.string(), digests(path_).string()));
}

bool RunFolder::is_time() const { return std::chrono::steady_clock::now() - last_save_ >= between_checkpoints; }

void RunFolder::save_checkpoint(const everyo::StateTree& state, std::int64_t step, bool is_best) {
  store_.save(state, step, is_best);
  last_save_ = std::chrono::steady_clock::now();
}

void RunFolder::finish(const everyo::ModuleBase& model, const nlohmann::json& config) {
  everyo::save_safetensors(path_ / "model.safetensors", model.state_dict());
  everyo::save_text(path_ / config_name, text_of(config));
}

void RunFolder::check_metrics() const {
  if (!metrics_) throw everyo::FileError(fmt::format("--out {}: {} cannot be written", path_.string(), metrics_name));
}

}  // namespace cli
