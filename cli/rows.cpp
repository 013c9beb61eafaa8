#include "cli/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "everyo/train.h"

namespace cli {
namespace {

bool is_digits(const Source& source) { return source.data == "digits"; }

}  // namespace

Format format_of(const std::string& path) {
  std::array<char, 8> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), start.size());
  const std::string_view begin(start.data(), static_cast<std::size_t>(file.gcount()));
  if (begin.starts_with("\x93NUMPY")) return Format::npy;
  if (begin.starts_with("\x89"
                        "EVPACK"))
    return Format::packed;
  return begin.starts_with(std::string_view("\0\0", 2)) ? Format::idx : Format::table;
}

CLI::Validator data_source() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        std::error_code ignored;  // a file that is gone is no mistake in a name: it has an ending or a folder
        if (text == "digits" || text.find_first_of("./") != std::string::npos || std::filesystem::exists(text, ignored))
          return "";
        return fmt::format(
            "'{}' is unknown; give digits, a .csv or packed file, or one of .npy or IDX with its --labels", text);
      },
      "digits|FILE");
}

everyo::ArrayDataset load_rows(const Source& source) {
  const Format format = is_digits(source) ? Format::table : format_of(source.data);
  const bool pair = format == Format::npy || format == Format::idx;
  if (pair && source.labels.empty())
    throw UsageError(fmt::format("--data {} needs --labels FILE, the labels of its rows", source.data));
  if (!pair && !source.labels.empty())
    throw UsageError(
        fmt::format("--labels goes with .npy and IDX files; --data {} has its labels inside", source.data));
  if ((format != Format::table || is_digits(source)) && !source.target.empty())
    throw UsageError(fmt::format("--target names a column of a .csv file; --data {} has none", source.data));
  const auto array_of = [](const std::string& path) {
    return format_of(path) == Format::npy ? everyo::load_npy(path) : everyo::load_idx(path);
  };
  if (is_digits(source)) return everyo::load_digits();
  if (pair) return everyo::labelled_rows(array_of(source.data), array_of(source.labels));
  if (format == Format::table) return everyo::load_csv_dataset(source.data, {.target_name = source.target});
  const everyo::PackedDataset packed(source.data);
  packed.verify();
  const everyo::Batch all = packed.range(0, packed.size());
  return everyo::labelled_rows(all.features, all.targets);
}

std::int64_t classes_of(const everyo::ArrayDataset& rows) {
  const auto labels = rows.targets.data<std::int64_t>();
  if (labels.empty()) throw everyo::FileError("the data has no rows");
  const auto [least, most] = std::ranges::minmax_element(labels);
  // A label beyond the number of rows is no class, and a model of so many could take all memory.
  if (*least < 0 || *most >= std::max<std::int64_t>(rows.size(), 2))
    throw everyo::FileError(fmt::format("label {} in row {} of {}; labels are classes, 0, 1, … without great gaps",
                                        *least < 0 ? *least : *most,
                                        std::distance(labels.begin(), *least < 0 ? least : most), rows.size()));
  return std::max<std::int64_t>(*most + 1, 2);
}

everyo::Split hold_out_fraction(const everyo::ArrayDataset& rows, double fraction) {
  const std::int64_t size = rows.size();
  if (size < 2) throw everyo::FileError(fmt::format("{} rows are too few to hold any out; give at least 2", size));
  const auto part = static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(size)));
  return everyo::hold_out(rows, std::clamp<std::int64_t>(part, 1, size - 1));
}

everyo::Split split_rows(const Source& source, const everyo::ArrayDataset& rows) {
  constexpr std::int64_t held_out_digits = 360;
  constexpr double fifth = 0.2;
  return is_digits(source) ? everyo::hold_out(rows, held_out_digits) : hold_out_fraction(rows, fifth);
}

}  // namespace cli
