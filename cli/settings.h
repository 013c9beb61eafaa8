#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/command.h"
#include "everyo/state.h"

namespace cli {

/// The choices that make up a run. Each is an option of the command line, a key of a --config file (with _ for -), an
/// entry of the run's checkpoints and a line of its settings.json: one list, so that the four cannot differ.
class Settings {
 public:
  using Value = std::variant<std::string*, std::int64_t*, std::optional<std::int64_t>*, std::optional<double>*>;
  /// Whether a resumed run may have another value than the one it was begun with.
  enum class OnResume : std::uint8_t { fixed, free };

  explicit Settings(CLI::App& app) : app_(app) {}
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  /// An option --name for a variable that must live as long as this.
  CLI::Option* add(const std::string& name, Value value, const std::string& description,
                   OnResume on_resume = OnResume::fixed);

  /// Takes what the command line has not given from a file: one JSON object. Throws UsageError for a file that is none,
  /// a key that is unknown, and a value of a wrong kind or out of range; FileError for a file that cannot be read.
  void read(const std::filesystem::path& file);

  /// What is set, by key; what has no value is left out.
  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] everyo::StateTree to_state() const;
  /// Takes the values of a run that is resumed. Throws UsageError for one that was given, may not change and is another
  /// there; `run` says which run it is.
  void take_over(const everyo::StateTree& saved, const std::string& run);

 private:
  struct Setting {
    std::string name, key;
    Value value;
    OnResume on_resume;
    CLI::Option* option;
  };
  void set(const Setting& setting, const nlohmann::json& value, const std::string& from) const;

  CLI::App& app_;
  std::vector<Setting> settings_;
};

}  // namespace cli
