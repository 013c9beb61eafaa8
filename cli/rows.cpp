#include "cli/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "everyo/train.h"

namespace cli {
namespace {

enum class Kind : std::uint8_t { digits, csv, npy, idx, unknown };

Kind kind_of(const std::string& data) {
  const std::filesystem::path path(data);
  if (data == "digits") return Kind::digits;
  if (path.extension() == ".csv") return Kind::csv;
  if (path.extension() == ".npy") return Kind::npy;
  const std::string name = path.filename().string();  // train-images-idx3-ubyte, t10k-images.idx3-ubyte, digits.idx
  if (path.extension() == ".idx" || name.find("-idx") != std::string::npos || name.find(".idx") != std::string::npos)
    return Kind::idx;
  return Kind::unknown;
}

}  // namespace

CLI::Validator data_source() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (kind_of(text) != Kind::unknown) return "";
        return fmt::format("'{}' is unknown; give digits, a file of .csv, or one of .npy or IDX with its --labels",
                           text);
      },
      "digits|FILE");
}

everyo::ArrayDataset load_rows(const Source& source) {
  const Kind kind = kind_of(source.data);
  const bool pair = kind == Kind::npy || kind == Kind::idx;
  if (pair && source.labels.empty())
    throw UsageError(fmt::format("--data {} needs --labels FILE, the labels of its rows", source.data));
  if (!pair && !source.labels.empty())
    throw UsageError(
        fmt::format("--labels goes with .npy and IDX files; --data {} has its labels inside", source.data));
  if (kind != Kind::csv && !source.target.empty())
    throw UsageError(fmt::format("--target names a column of a .csv file; --data {} has none", source.data));
  switch (kind) {
    case Kind::digits: return everyo::load_digits();
    case Kind::csv: return everyo::load_csv_dataset(source.data, {.target_name = source.target});
    case Kind::npy: return everyo::labelled_rows(everyo::load_npy(source.data), everyo::load_npy(source.labels));
    case Kind::idx: return everyo::labelled_rows(everyo::load_idx(source.data), everyo::load_idx(source.labels));
    case Kind::unknown: break;
  }
  throw UsageError(fmt::format("--data {} is unknown", source.data));
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
  return source.data == "digits" ? everyo::hold_out(rows, held_out_digits) : hold_out_fraction(rows, fifth);
}

}  // namespace cli
