#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/rows.h"
#include "everyo/nn.h"

// The model of a finished run, from the folder that `everyo train --out` wrote.
namespace cli {

/// What config.json of a run says of its model, and of the data it was trained on.
struct RunConfig {
  std::string model;
  Source source;
  std::int64_t inputs = 0, classes = 0;
  std::string digest, precision;
};

/// Throws FileError for a folder that holds no whole run.
RunConfig read_config(const std::filesystem::path& folder);
/// Throws FileError unless the run's model takes rows of so many numbers, and labels of so many classes.
void require_fit(const std::filesystem::path& folder, const RunConfig& config, std::int64_t inputs,
                 std::int64_t classes);
/// The model with its weights. Throws FileError for weights that are not this run's.
std::unique_ptr<everyo::ModuleBase> load_model(const std::filesystem::path& folder, const RunConfig& config);

}  // namespace cli
