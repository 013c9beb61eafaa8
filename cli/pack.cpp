#include <fmt/format.h>

#include <charconv>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/rows.h"
#include "everyo/data.h"

namespace cli {
namespace {

struct Choices {
  std::vector<std::string> files;
  std::string target = "-1", delimiter = "comma", target_type = "int64";
};

const std::map<std::string, char> delimiters{
    {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"space", ' '}, {"bar", '|'}};

everyo::Tensor load_array(const std::string& path) {
  switch (format_of(path)) {
    case Format::npy: return everyo::load_npy(path);
    case Format::idx: return everyo::load_idx(path);
    case Format::table:
    case Format::packed: break;
  }
  throw everyo::FileError(
      fmt::format("{} is neither an .npy nor an IDX file; features and targets of two files are "
                  "packed from these, and one table of both from a CSV file",
                  path));
}

everyo::ArrayDataset load(const Choices& choices) {
  if (choices.files.size() == 3) return {load_array(choices.files[0]), load_array(choices.files[1])};
  const std::string& path = choices.files[0];
  if (format_of(path) != Format::table)
    throw UsageError(
        fmt::format("{} holds one array; give the file of its targets, too: everyo pack FEATURES TARGETS OUT", path));
  everyo::CsvDatasetOptions options{.target_dtype = everyo::dtype_of(choices.target_type)};
  options.csv.delimiter = delimiters.at(choices.delimiter);
  const char* const end = choices.target.data() + choices.target.size();
  if (const auto [stop, error] = std::from_chars(choices.target.data(), end, options.target_column);
      error != std::errc{} || stop != end)
    options.target_name = choices.target;
  return everyo::load_csv_dataset(path, options);
}

std::string described(const everyo::Spec& all) {
  return fmt::format("{} of {}", everyo::to_string(everyo::Shape(all.shape.sizes().subspan(1))),
                     everyo::name_of(all.dtype));
}

int pack(const Common& common, const Choices& choices) {
  if (const std::size_t count = choices.files.size(); count != 2 && count != 3)
    throw UsageError(fmt::format("{} files are given; everyo pack takes TABLE.csv OUT or FEATURES TARGETS OUT", count));
  const std::string& out = choices.files.back();
  const everyo::PackedInfo info = everyo::pack(load(choices), out);
  fmt::print("{} samples, features {}, targets {}: {} bytes in {}\n", info.features.shape[0], described(info.features),
             described(info.targets), info.bytes, out);
  if (common.json)
    print_json({{"out", out},
                {"samples", info.features.shape[0]},
                {"bytes", info.bytes},
                {"features_digest", info.features_digest},
                {"targets_digest", info.targets_digest}});
  return success;
}

}  // namespace

Command add_pack(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("pack", "put a data set into one file that is mapped, not parsed");
  const auto choices = std::make_shared<Choices>();
  app->add_option("files", choices->files, "TABLE.csv OUT, or FEATURES TARGETS OUT of two .npy or IDX (MNIST) files")
      ->required()
      ->expected(-1)
      ->option_text("FILE ...");
  app->add_option("--target", choices->target, "column of the target, by name or number; from the last when negative")
      ->capture_default_str();
  app->add_option("--target-type", choices->target_type, "of a table's target")
      ->check(one_of({"int64", "float32"}))
      ->capture_default_str();
  app->add_option("--delimiter", choices->delimiter, "between a table's columns")
      ->check(one_of({"comma", "semicolon", "tab", "space", "bar"}))
      ->capture_default_str();
  return {app, [&common, choices, app] {
            for (const char* name : {"--target", "--target-type", "--delimiter"})
              if (app->count(name) > 0 && choices->files.size() == 3)
                throw UsageError(fmt::format("{} is of a table; FEATURES TARGETS OUT have none", name));
            return pack(common, *choices);
          }};
}

}  // namespace cli
