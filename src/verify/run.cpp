#include <fmt/format.h>

#include <cmath>
#include <exception>

#include "everyo/error.h"
#include "everyo/verify.h"
#include "verify/topics.h"

namespace everyo::inline v1::verify {
namespace {

bool within(const Figure& figure, std::span<const double> measured) {
  if (measured.size() != figure.reference.size()) return false;
  for (std::size_t i = 0; i < measured.size(); ++i)
    if (!(measured[i] == figure.reference[i] || std::abs(measured[i] - figure.reference[i]) <= figure.tolerance))
      return false;
  return true;
}

}  // namespace

std::vector<std::string> topics() { return {"precision", "parallel", "export"}; }

std::vector<Check> checks(std::string_view topic) {
  if (topic == "precision") return verify_room::precision_checks();
  if (topic == "parallel") return verify_room::parallel_checks();
  if (topic == "export") return verify_room::export_checks();
  throw ValueError(fmt::format("[verify] unknown topic '{}'; known: {}", topic, fmt::join(topics(), ", ")));
}

Outcome run(const Check& check, const Options& options) {
  Outcome outcome{.requirement = check.requirement,
                  .what = check.what,
                  .figure = check.figure,
                  .measured = {},
                  .sabotage = check.sabotage,
                  .note = check.note,
                  .columns = check.columns};
  const auto measure = [&](bool sabotaged) -> std::vector<double> {
    try {
      return check.measure(sabotaged);
    } catch (const std::exception& error) {
      outcome.error +=
          fmt::format("{}{}{}", outcome.error.empty() ? "" : "; ", sabotaged ? "sabotaged: " : "", error.what());
      return {};
    }
  };
  outcome.measured = measure(false);
  outcome.pass = within(check.figure, outcome.measured);
  if (check.remark) outcome.remark = check.remark();
  if (options.prove) {
    outcome.sabotaged = measure(true);
    outcome.sabotaged_pass = within(check.figure, outcome.sabotaged);
  }
  return outcome;
}

}  // namespace everyo::inline v1::verify
