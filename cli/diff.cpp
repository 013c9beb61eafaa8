#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/command.h"
#include "cli/run_folder.h"
#include "everyo/error.h"

namespace cli {
namespace {

// Of one line of digests.jsonl: enough for tens of thousands of tensors.
constexpr std::size_t most_bytes = std::size_t{1} << 24;

struct Tensor {
  std::string name, kind, digest;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};
struct Step {
  std::int64_t number = 0;
  std::string digest;
  std::vector<Tensor> tensors;
};

/// The digests of a run, step by step. Wrong usage is what cannot be compared: exit code 1 says that runs differ.
class Digests {
 public:
  explicit Digests(const std::string& run) : path_(RunFolder::digests(run)) {
    if (!RunFolder::has_digests(run))
      throw UsageError(fmt::format("{} not found; give the folder of a run of 'everyo train --digests --out'", name()));
    file_.open(path_, std::ios::binary);
  }

  /// The next step; nothing after the last.
  std::optional<Step> next() {
    const std::string line = next_line();
    if (line.empty()) return std::nullopt;
    ++line_;
    try {
      return parse(everyo::base::parse_json(line, fmt::format("{} line {}", name(), line_)));
    } catch (const everyo::FileError& error) {
      throw UsageError(error.what());
    }
  }

 private:
  [[nodiscard]] std::string name() const { return path_.string(); }
  [[noreturn]] void damaged(std::string_view what) const {
    throw UsageError(fmt::format("{} line {} is damaged: {}", name(), line_, what));
  }

  std::string next_line() {
    std::string line;
    for (int c = file_.get(); c != std::char_traits<char>::eof(); c = file_.get()) {
      if (c == '\n') return line;
      if (line.size() == most_bytes) damaged(fmt::format("it has more than {} bytes", most_bytes));
      line.push_back(static_cast<char>(c));
    }
    return {};  // a line that was cut short is none
  }

  [[nodiscard]] Step parse(const nlohmann::json& row) const {
    const auto text = [](const nlohmann::json& value) { return value.is_string(); };
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer() || !row.contains("digest") ||
        !text(row["digest"]) || !row.contains("tensors") || !row["tensors"].is_array())
      damaged("it is no step with its digests");
    Step step{row["step"].get<std::int64_t>(), row["digest"].get<std::string>(), {}};
    for (const nlohmann::json& tensor : row["tensors"]) {
      if (!tensor.is_array() || tensor.size() != 3 || !text(tensor[0]) || !text(tensor[1]) || !text(tensor[2]))
        damaged("a tensor is no name, kind and digest");
      step.tensors.push_back(
          {tensor[0].get<std::string>(), tensor[1].get<std::string>(), tensor[2].get<std::string>()});
    }
    return step;
  }

  std::filesystem::path path_;
  std::ifstream file_;
  std::int64_t line_ = 0;
};

/// Where two runs part.
struct Difference {
  std::int64_t step = 0;
  std::string what{};               // for people
  std::optional<Tensor> tensor{};   // the first that differs
  std::size_t tensors = 0, of = 0;  // that differ
};

Difference between(const Step& a, const Step& b) {
  Difference found{.step = a.number, .of = a.tensors.size()};
  bool same_tensors = a.tensors.size() == b.tensors.size();
  for (std::size_t i = 0; same_tensors && i < a.tensors.size(); ++i)
    same_tensors = a.tensors[i].name == b.tensors[i].name && a.tensors[i].kind == b.tensors[i].kind;
  if (!same_tensors) {
    found.what = "the runs have other tensors: models, optimizers, or which of them have gradients, differ";
    return found;
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i] == b.tensors[i]) continue;
    ++found.tensors;
    // In a step gradients come first; what is made of them follows.
    if (!found.tensor || (a.tensors[i].kind == "gradient" && found.tensor->kind != "gradient"))
      found.tensor = a.tensors[i];
  }
  if (!found.tensor)
    found.what = "the digests of the whole step differ, and those of its tensors do not";
  else
    found.what = fmt::format("the {} of '{}' is the first of {} of {} tensors that differ", found.tensor->kind,
                             everyo::base::printable(found.tensor->name), found.tensors, found.of);
  return found;
}

int report(const Common& common, const std::optional<Difference>& difference, std::int64_t equal_steps) {
  nlohmann::json json{{"equal", !difference}, {"equal_steps", equal_steps}};
  if (difference) {
    fmt::print("step {}: {}; equal steps before it: {}\n", difference->step, difference->what, equal_steps);
    json["step"] = difference->step;
    if (difference->tensor) {
      const std::string& name = difference->tensor->name;
      const std::size_t dot = name.rfind('.');
      json["module"] = dot == std::string::npos ? "" : name.substr(0, dot);
      json["tensor"] = name;
      json["kind"] = difference->tensor->kind;
    }
  } else {
    fmt::print("equal: {} steps have the same bits\n", equal_steps);
  }
  if (common.json) print_json(json);
  return difference ? failure : success;
}

int diff(const Common& common, const std::string& run_a, const std::string& run_b) {
  Digests a(run_a), b(run_b);
  for (std::int64_t equal = 0;; ++equal) {
    const std::optional<Step> of_a = a.next(), of_b = b.next();
    if (!of_a && !of_b) {
      if (equal == 0) throw UsageError(fmt::format("{} and {} have no steps to compare", run_a, run_b));
      return report(common, std::nullopt, equal);
    }
    if (!of_a || !of_b)
      return report(common,
                    Difference{.step = of_a ? of_a->number : of_b->number,
                               .what = fmt::format("only {} has it", of_a ? run_a : run_b)},
                    equal);
    if (of_a->number != of_b->number)
      return report(common,
                    Difference{.step = std::min(of_a->number, of_b->number),
                               .what = fmt::format("{} goes on with step {}, {} with step {}", run_a, of_a->number,
                                                   run_b, of_b->number)},
                    equal);
    if (of_a->digest != of_b->digest) return report(common, between(*of_a, *of_b), equal);
  }
}

}  // namespace

Command add_diff(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("diff", "the first step and tensor in which two runs with --digests differ");
  const auto runs = std::make_shared<std::pair<std::string, std::string>>();
  app->add_option("run_a", runs->first, "folder of a run that 'everyo train --digests --out' wrote")->required();
  app->add_option("run_b", runs->second, "folder of another")->required();
  return {app, [&common, runs] { return diff(common, runs->first, runs->second); }};
}

}  // namespace cli
