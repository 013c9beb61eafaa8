#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "everyo/data.h"
#include "everyo/random.h"

namespace everyo::inline v1 {
namespace {

/// The folder that holds the library, or the program it is linked into.
std::filesystem::path library_folder() {
  static const char anchor = 0;  // an address inside the library
  Dl_info info{};
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::canonical(info.dli_fname, ignored);
  if (path.empty()) path = std::filesystem::canonical("/proc/self/exe", ignored);
  return path.parent_path();
}

}  // namespace

std::string find_data_file(const std::string& name) {
  std::vector<std::filesystem::path> places;
  if (const char* given = std::getenv("EVERYO_DATA"); given != nullptr && *given != '\0') places.emplace_back(given);
  std::filesystem::path folder = library_folder();
  for (int level = 0; level <= 3 && !folder.empty(); ++level) {
    places.push_back(folder / "data");
    places.push_back(folder / "share" / "everyo");
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  std::string looked;
  for (const auto& place : places) {
    const std::filesystem::path path = place / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  throw FileError(fmt::format("[find_data_file] {} not found; looked in {}. Set EVERYO_DATA to the folder that has it",
                              name, looked),
                  ErrorKind::file_not_found);
}

ArrayDataset load_digits(const std::string& path) {
  constexpr std::int64_t pixels = 64, classes = 10;
  constexpr float most = 16;  // a pixel's largest value
  const std::string file = path.empty() ? find_data_file("digits.csv") : path;
  ArrayDataset digits = load_csv_dataset(file);
  if (digits.features.shape()[1] != pixels)
    throw FileError(fmt::format("[load_digits] {} has {} columns; digits have 64 pixels and a label", file,
                                digits.features.shape()[1] + 1),
                    ErrorKind::shape);
  std::size_t index = 0;
  for (float& pixel : digits.features.data<float>()) {
    if (!(pixel >= 0 && pixel <= most))
      throw FileError(fmt::format("[load_digits] {}, row {}, column {}: pixel {} lies outside 0..16", file,
                                  index / pixels + 1, index % pixels + 1, pixel));
    pixel /= most;
    ++index;
  }
  const auto labels = digits.targets.data<std::int64_t>();
  for (std::size_t row = 0; row < labels.size(); ++row)
    if (labels[row] < 0 || labels[row] >= classes)
      throw FileError(fmt::format("[load_digits] {}, row {}: label {} lies outside 0..9", file, row + 1, labels[row]));
  return digits;
}

Split hold_out(const ArrayDataset& all, std::int64_t held_out) {
  if (held_out <= 0 || held_out >= all.size())
    throw ValueError(
        fmt::format("[hold_out] {} rows to hold out of {}; need at least 1 and fewer than all", held_out, all.size()));
  const std::vector<std::int64_t> order = Generator(0).permutation(all.size());
  const auto kept = static_cast<std::size_t>(all.size() - held_out);
  return {ArrayDataset(all.rows(std::span(order).first(kept))), ArrayDataset(all.rows(std::span(order).subspan(kept)))};
}

}  // namespace everyo::inline v1
