#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "everyo/error.h"

namespace everyo::base {

/// Text from outside as a message may show it: UTF-8 without control characters, at most `longest` bytes of it.
inline std::string printable(std::string_view text, std::size_t longest = 80) {
  constexpr auto replace = nlohmann::json::error_handler_t::replace;
  const std::string quoted = nlohmann::json(text.substr(0, longest)).dump(-1, ' ', false, replace);
  return quoted.substr(1, quoted.size() - 2) + (text.size() > longest ? "..." : "");
}

/// How deep JSON from outside may nest: what the functions of nlohmann::json that recurse surely withstand.
inline constexpr int most_json_levels = 100;

/// JSON from outside. Throws FileError that begins with `what` for text that is none, is not UTF-8, has a zero byte,
/// nests more than 100 deep, or has a name twice in one object.
inline nlohmann::json parse_json(std::string_view text, std::string_view what) {
  using nlohmann::json;
  const auto fail = [what](std::string_view why) {
    throw FileError(fmt::format("{}: {}", what, printable(why, 200)));  // the parser quotes what it cannot read
  };
  if (text.find('\0') != std::string_view::npos) fail("it has a zero byte");  // where the parser would stop
  std::vector<std::set<std::string>> names;                                   // of each object that is open
  using Event = json::parse_event_t;
  const auto check = [&](int level, Event event, json& parsed) {
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && level >= most_json_levels) fail(fmt::format("its JSON nests more than {} deep", most_json_levels));
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(parsed.get<std::string>()).second)
      fail(fmt::format("its JSON has the name '{}' twice", printable(parsed.get_ref<const std::string&>())));
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    fail(fmt::format("it is no valid JSON: {}", error.what()));
  }
  return {};
}

}  // namespace everyo::base
