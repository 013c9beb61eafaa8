#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "cli/command.h"
#include "everyo/verify.h"

namespace cli {
namespace {

struct Choices {
  std::string topic;
  bool prove = false, markdown = false;
};

nlohmann::json number_or_list(const std::vector<double>& values) {
  // JSON has no NaN and no infinity; what is neither stays a number.
  const auto one = [](double v) -> nlohmann::json {
    if (v != v || v - v != 0) return fmt::format("{}", v);
    return v;
  };
  if (values.size() == 1) return one(values[0]);
  nlohmann::json list = nlohmann::json::array();
  for (const double v : values) list.push_back(one(v));
  return list;
}

nlohmann::json to_json(const everyo::verify::Outcome& o) {
  nlohmann::json row{{"requirement", o.requirement},
                     {"what", o.what},
                     {"columns", o.columns},
                     {"reference", number_or_list(o.figure.reference)},
                     {"measured", number_or_list(o.measured)},
                     {"tolerance", o.figure.tolerance},
                     {"pass", o.pass},
                     {"sabotage", o.sabotage},
                     {"sabotaged_pass", nullptr}};
  if (o.sabotaged_pass) row["sabotaged_pass"] = *o.sabotaged_pass;
  if (!o.error.empty()) row["error"] = o.error;
  if (!o.remark.empty()) row["remark"] = o.remark;
  return row;
}

std::string shown(const everyo::verify::Outcome& o, const std::vector<double>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t width = i < o.columns.size() ? std::max<std::size_t>(o.columns[i].size(), 9) : 0;
    text += fmt::format("{}{:<{}}", text.empty() ? "" : "  ", fmt::format("{:.4g}", values[i]), width);
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

void print(const everyo::verify::Outcome& o) {
  fmt::print("{}  {:<4} {}\n", o.pass ? "PASS" : "FAIL", o.requirement, o.what);
  if (!o.columns.empty()) {
    std::string heads;
    for (const std::string& name : o.columns) heads += fmt::format("  {:<9}", name);
    fmt::print("                 {}\n", heads.substr(0, heads.find_last_not_of(' ') + 1));
  }
  fmt::print("        reference  {}\n", shown(o, o.figure.reference));
  fmt::print("        measured   {}\n", shown(o, o.measured));
  fmt::print("        tolerance  {:.3g}: {}\n", o.figure.tolerance, o.figure.reason);
  if (!o.note.empty()) fmt::print("        meaning    {}\n", o.note);
  if (!o.remark.empty()) fmt::print("        not judged {}\n", o.remark);
  if (o.sabotaged_pass)
    fmt::print("        sabotaged  {}   {}: {}\n", shown(o, o.sabotaged), *o.sabotaged_pass ? "NOT FOUND" : "found",
               o.sabotage);
  if (!o.error.empty()) fmt::print("        error      {}\n", o.error);
}

// Outcomes of one requirement whose numbers have the same names, as a table for a page.
void print_table(std::span<const everyo::verify::Outcome> rows) {
  const auto line = [](const std::vector<std::string>& cells) { fmt::print("| {} |\n", fmt::join(cells, " | ")); };
  const std::vector<std::string>& columns = rows[0].columns;
  std::vector<std::string> heads{rows[0].requirement};
  if (columns.empty())
    heads.insert(heads.end(), {"measured", "must be"});
  else
    heads.insert(heads.end(), columns.begin(), columns.end());
  heads.emplace_back("fails when");
  line(heads);
  line(std::vector<std::string>(heads.size(), "---"));
  for (const everyo::verify::Outcome& o : rows) {
    std::vector<std::string> cells{o.pass ? o.what : "FAIL: " + o.what};
    for (const double v : o.measured) cells.push_back(fmt::format("{:.4g}", v));
    if (columns.empty())
      cells.push_back(o.figure.tolerance == 0
                          ? fmt::format("{:.4g}", o.figure.reference[0])
                          : fmt::format("{:.4g} ± {:.2g}", o.figure.reference[0], o.figure.tolerance));
    cells.push_back(o.sabotage);
    line(cells);
  }
  fmt::print("\n");
}

void print_tables(std::span<const everyo::verify::Outcome> outcomes) {
  while (!outcomes.empty()) {
    std::size_t count = 1;
    while (count < outcomes.size() && outcomes[count].requirement == outcomes[0].requirement &&
           outcomes[count].columns == outcomes[0].columns)
      ++count;
    print_table(outcomes.first(count));
    outcomes = outcomes.subspan(count);
  }
}

int verify(const Common& common, const Choices& choices) {
  std::vector<std::string> topics = everyo::verify::topics();
  if (!choices.topic.empty()) topics = {choices.topic};
  nlohmann::json rows = nlohmann::json::array();
  std::vector<everyo::verify::Outcome> outcomes;
  int passed = 0, found = 0, good = 0, total = 0;
  for (const std::string& topic : topics) {
    for (const everyo::verify::Check& check : everyo::verify::checks(topic)) {
      const everyo::verify::Outcome outcome = everyo::verify::run(check, {.prove = choices.prove});
      if (choices.markdown)
        outcomes.push_back(outcome);
      else
        print(outcome);
      rows.push_back(to_json(outcome));
      passed += outcome.pass ? 1 : 0;
      found += outcome.sabotaged_pass.value_or(true) ? 0 : 1;
      good += outcome.good() ? 1 : 0;
      ++total;
    }
  }
  print_tables(outcomes);
  fmt::print("{} of {} checks pass", passed, total);
  if (choices.prove) fmt::print("; {} of {} sabotages are found", found, total);
  fmt::print("\n");
  if (common.json) print_json(rows);
  return good == total ? success : failure;
}

}  // namespace

Command add_verify(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("verify", "check the library's promises on this machine");
  const auto choices = std::make_shared<Choices>();
  app->add_option("topic", choices->topic, "all without it")->check(one_of(everyo::verify::topics()));
  app->add_flag("--prove", choices->prove, "put a fault into each check, too: it must be found");
  app->add_flag("--markdown", choices->markdown, "print tables as docs/ has them");
  return {app, [&common, choices] { return verify(common, *choices); }};
}

}  // namespace cli
