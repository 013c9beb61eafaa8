#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/rows.h"
#include "cli/trained_model.h"
#include "everyo/data.h"
#include "everyo/ops.h"
#include "everyo/precision.h"
#include "everyo/train.h"

namespace cli {
namespace {

struct Choices {
  std::string checkpoint;
  Source source{.data = "", .labels = "", .target = ""};  // none: the run's own
};

std::string percent(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

void print_table(const std::vector<std::vector<std::int64_t>>& confusion) {
  constexpr int width = 8;
  const std::size_t classes = confusion.size();
  fmt::print("rows: true class, columns: predicted\n{:{}}", "", width + 2);
  for (std::size_t k = 0; k < classes; ++k) fmt::print("{:{}}", k, width);
  fmt::print("{:>{}}\n", "recall", width + 2);
  std::string precisions;
  for (std::size_t k = 0; k < classes; ++k) {
    std::int64_t in_row = 0, in_column = 0;
    fmt::print("{:{}}", k, width + 2);
    for (std::size_t other = 0; other < classes; ++other) {
      fmt::print("{:{}}", confusion[k][other], width);
      in_row += confusion[k][other];
      in_column += confusion[other][k];
    }
    fmt::print("{:>{}}\n", percent(confusion[k][k], in_row), width + 2);
    precisions += fmt::format("{:>{}}", percent(confusion[k][k], in_column), width);
  }
  fmt::print("{:>{}}{}\n", "precision", width + 2, precisions);
}

int evaluate(const Common& common, const Choices& choices) {
  const RunConfig config = read_config(choices.checkpoint);
  const bool of_the_run = choices.source.data.empty() || choices.source == config.source;
  const Source& source = choices.source.data.empty() ? config.source : choices.source;
  const everyo::ArrayDataset all = load_rows(source);
  require_fit(choices.checkpoint, config, all.features.shape()[1], classes_of(all));
  const auto model = load_model(choices.checkpoint, config);
  const std::int64_t classes = config.classes;
  const everyo::ArrayDataset rows = of_the_run ? split_rows(source, all).test : all;
  std::optional<everyo::Autocast> low;  // as the run evaluated it
  if (const everyo::DType dtype = everyo::dtype_of(config.precision); is_half(dtype)) low.emplace(dtype);
  const auto [loss, accuracy, samples] = everyo::evaluate(*model, everyo::CrossEntropyLoss(), rows);
  const everyo::Tensor matrix =
      everyo::confusion_matrix(everyo::predict_classes(*model, rows), rows.targets, classes);  // [K, K]
  std::vector<std::vector<std::int64_t>> confusion;
  std::int64_t right = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    const auto row =
        matrix.data<std::int64_t>().subspan(static_cast<std::size_t>(k * classes), static_cast<std::size_t>(classes));
    confusion.emplace_back(row.begin(), row.end());
    right += row[static_cast<std::size_t>(k)];
  }
  fmt::print("{} of {} on {}{}: {}accuracy {:.2f} %, loss {:.4f}; {} of {} rows are wrong\n", config.model,
             choices.checkpoint, source.data, low ? " in " + config.precision : "", of_the_run ? "held-out " : "",
             100 * accuracy, loss, samples - right, samples);
  print_table(confusion);
  if (common.json)
    print_json({{"accuracy", accuracy},
                {"loss", loss},
                {"confusion", confusion},
                {"samples", samples},
                {"digest", config.digest}});
  return success;
}

}  // namespace

Command add_evaluate(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("evaluate", "test a trained model on rows it has not seen, class by class");
  const auto choices = std::make_shared<Choices>();
  app->add_option("checkpoint", choices->checkpoint, "folder that 'everyo train --out' wrote")->required();
  app->add_option("--data", choices->source.data,
                  "what to test on, as for train: all rows of it; without it those held out in training")
      ->check(data_source());
  app->add_option("--labels", choices->source.labels, "file with the labels of a --data file of .npy or IDX");
  app->add_option("--target", choices->source.target, "column of a .csv file with the labels; without it the last");
  return {app, [&common, choices, app] {
            for (const char* name : {"--labels", "--target"})  // of the run's own data they are the run's own
              if (app->count(name) > 0 && app->count("--data") == 0)
                throw UsageError(fmt::format("{} goes with --data FILE; add it, or leave it out", name));
            return evaluate(common, *choices);
          }};
}

}  // namespace cli
