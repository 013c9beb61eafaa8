#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/rows.h"
#include "cli/settings.h"

// What 'everyo train' is told.
namespace cli {

struct TrainChoices {
  Source source;
  std::string model = "mlp", optimizer = "adam", schedule = "constant", precision = "float32", transport = "shm", out,
              config;
  std::int64_t epochs = 30, batch = 32, accumulate = 1, seed = 0, warm_up = 0;
  std::int64_t workers = 1, virtual_shards = 0, loader_workers = 0;
  std::optional<double> lr, clip, validation;
  std::optional<std::int64_t> patience;
  bool resume = false, digests = false;
};

/// The options of a run, and the values they have.
struct TrainRun {
  explicit TrainRun(CLI::App& app);
  TrainChoices choices;
  Settings settings;
};

}  // namespace cli
