#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/export.h"

/// Checks, made here and now, of what the library promises. Each carries a fault of the kind it is there to find, its
/// sabotage, and must fail once that is put in.
namespace everyo::inline v1::verify {

/// What must come out: one number or several, each within `tolerance` of its place in `reference`.
struct Figure {
  std::vector<double> reference;
  double tolerance = 0;
  std::string reason;  ///< why that tolerance
};

struct Check {
  std::string requirement;  ///< its number, such as "P1"
  std::string what;
  Figure figure;
  std::function<std::vector<double>(bool sabotaged)> measure;
  std::string sabotage;                ///< the fault that measure(true) puts in
  std::string note{};                  ///< what the figures mean, for the reader
  std::vector<std::string> columns{};  ///< names of the figure's numbers, when there are several
  /// Called after measure(false): what was seen beside the figure, such as times, and is not judged.
  std::function<std::string()> remark{};
};

struct Outcome {
  std::string requirement, what;
  Figure figure;
  std::vector<double> measured;
  bool pass = false;
  std::string sabotage;
  std::vector<double> sabotaged{};       ///< measured under the sabotage; empty unless it was asked for
  std::optional<bool> sabotaged_pass{};  ///< must be false
  std::string note{}, error{};           ///< error: what measuring threw; then it has not passed
  std::vector<std::string> columns{};
  std::string remark{};
  /// Passed, and its sabotage, if it was run, was found without an error.
  [[nodiscard]] bool good() const noexcept { return pass && !sabotaged_pass.value_or(false) && error.empty(); }
};

struct Options {
  bool prove = false;  ///< run every sabotage too
};

/// "precision", "parallel", "export". Throws nothing.
EVERYO_API std::vector<std::string> topics();
/// Throws ValueError for a topic that is none; FileError when its figures (data/verify/TOPIC.json) are missing or
/// damaged.
EVERYO_API std::vector<Check> checks(std::string_view topic);
EVERYO_API Outcome run(const Check& check, const Options& options = {});

}  // namespace everyo::inline v1::verify
