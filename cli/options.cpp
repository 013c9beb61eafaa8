#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <utility>

#include "cli/command.h"
#include "everyo/error.h"

namespace cli {
namespace {

/// Insertions, deletions and substitutions that turn one word into the other (Levenshtein 1966).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

template <class T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

CLI::Validator check(std::function<std::string(std::string&)> function, std::string description) {
  return CLI::Validator(std::move(function), std::move(description));
}

}  // namespace

std::string similar(const std::string& word, const std::vector<std::string>& allowed) {
  std::string best;
  std::size_t least = word.size() / 2;  // further away than half of its letters is another word
  for (const std::string& candidate : allowed)
    if (const std::size_t d = distance(word, candidate); d <= least && d < std::max(word.size(), candidate.size())) {
      if (best.empty() || d < least) best = candidate;
      least = d;
    }
  return best;
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return check(
      [=](std::string& text) -> std::string {
        std::int64_t value = 0;
        if (parse(text, value) && value >= least && value <= most) return "";
        return fmt::format("'{}' is not allowed; give a whole number from {} to {}", text, least, most);
      },
      "N");
}

CLI::Validator number_above_zero() {
  return check(
      [](std::string& text) -> std::string {
        double value = 0;
        if (parse(text, value) && std::isfinite(value) && value > 0) return "";
        return fmt::format("'{}' is not allowed; give a finite number above 0", text);
      },
      "X");
}

CLI::Validator fraction() {
  return check(
      [](std::string& text) -> std::string {
        double value = 0;
        if (parse(text, value) && value > 0 && value < 1) return "";
        return fmt::format("'{}' is not allowed; give a number between 0 and 1", text);
      },
      "X");
}

CLI::Validator one_of(std::vector<std::string> allowed) {
  const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
  return check(
      [=](std::string& text) -> std::string {
        if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return "";
        const std::string close = similar(text, allowed);
        return fmt::format("'{}' is unknown; allowed: {}{}", text, list,
                           close.empty() ? "" : fmt::format(". Did you mean '{}'?", close));
      },
      list);
}

void add_common(CLI::App& app, Common& common) {
  app.add_flag("--json", common.json, "make the last line of standard output one JSON value");
  app.add_option("--threads", common.threads, "most threads to use; 0: all")->check(whole_number(0, 4096));
  app.add_option("--isa", common.isa, "highest instruction set to use")
      ->check(one_of({"baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx"}));
}

std::string read_text(const std::filesystem::path& path, const std::string& what) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw everyo::FileError(fmt::format("{} not found, or no file", what), everyo::ErrorKind::file_not_found);
  std::ifstream file(path, std::ios::binary);
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (!file && !file.eof())) throw everyo::FileError(fmt::format("{} is not readable", what));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most)
    throw everyo::FileError(fmt::format("{} has more than the {} bytes that are read of it", what, most));
  return text;
}

void print_json(const nlohmann::json& value) {
  // What is no text (a path's bytes) is replaced, not refused.
  fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace cli
