#include "verify/figures.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "everyo/data.h"
#include "everyo/error.h"

namespace everyo::verify_room {

Figures::Figures(std::string_view topic) : name_(find_data_file(fmt::format("verify/{}.json", topic))) {
  constexpr std::uint64_t largest = 1 << 20;
  parse(base::read_file(name_, largest));
}

Figures::Figures(std::string_view text, std::string name) : name_(std::move(name)) { parse(text); }

void Figures::parse(std::string_view text) try {
  const nlohmann::json table = nlohmann::json::parse(text);
  for (const auto& [key, entry] : table.items()) {
    const auto& reference = entry.at("reference");
    verify::Figure figure{.reference = reference.is_array() ? reference.get<std::vector<double>>()
                                                            : std::vector<double>{reference.get<double>()},
                          .tolerance = entry.at("tolerance").get<double>(),
                          .reason = entry.at("reason").get<std::string>()};
    if (figure.reference.empty() || !(figure.tolerance >= 0))
      throw FileError(fmt::format("[verify] {}: '{}' needs a reference, and a tolerance of at least 0", name_, key));
    figures_.emplace(key, std::move(figure));
  }
} catch (const nlohmann::json::exception& error) {
  throw FileError(fmt::format("[verify] {} is no table of figures: {}", name_, error.what()));
}

const verify::Figure& Figures::at(const std::string& name) const {
  const auto found = figures_.find(name);
  if (found == figures_.end()) throw FileError(fmt::format("[verify] {} has no figure '{}'", name_, name));
  return found->second;
}

}  // namespace everyo::verify_room
