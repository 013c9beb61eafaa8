#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "everyo/io.h"
#include "everyo/onnx.h"
#include "everyo/ops.h"

namespace cli {
namespace {

struct Choices {
  std::string file, output;
  std::vector<std::string> inputs;  // NAME=FILE.npy
  Source source{.data = "", .labels = "", .target = ""};
};

std::string shape_of(const everyo::OnnxValue& value) {
  std::vector<std::string> sizes;
  for (std::size_t axis = 0; axis < value.shape.size(); ++axis)
    sizes.push_back(value.shape[axis] >= 0
                        ? std::to_string(value.shape[axis])
                        : (value.sizes[axis].empty() ? "?" : everyo::base::printable(value.sizes[axis])));
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

nlohmann::json json_of(const std::vector<everyo::OnnxValue>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const everyo::OnnxValue& value : values)
    list.push_back({{"name", value.name},
                    {"dtype", everyo::name_of(value.dtype)},
                    {"shape", value.shape},
                    {"sizes", value.sizes}});
  return list;
}

nlohmann::json show(const everyo::OnnxDescription& file) {
  const auto print = [](const char* what, const std::vector<everyo::OnnxValue>& values) {
    for (const everyo::OnnxValue& value : values)
      fmt::print("  {} {}: {} {}\n", what, everyo::base::printable(value.name), everyo::name_of(value.dtype),
                 shape_of(value));
  };
  print("input", file.inputs);
  print("output", file.outputs);
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : file.metadata) {
    fmt::print("  {}: {}\n", everyo::base::printable(key), everyo::base::printable(value, 1000));
    metadata[key] = value;
  }
  std::fflush(stdout);
  return {{"inputs", json_of(file.inputs)}, {"outputs", json_of(file.outputs)}, {"metadata", metadata}};
}

// Classes of all rows of a data set, in batches.
nlohmann::json classify(const everyo::OnnxModel& model, const Source& source) {
  constexpr std::int64_t batch = 256;
  const everyo::ArrayDataset rows = load_rows(source);
  if (model.inputs().size() != 1)
    throw UsageError(
        fmt::format("--data gives one input, and the file has {}; name each by --input", model.inputs().size()));
  std::vector<std::int64_t> predictions;
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < rows.size(); first += batch) {
    const everyo::Batch part = rows.range(first, std::min(batch, rows.size() - first));
    const everyo::NamedTensors outputs = model.run(model.convert({{model.inputs()[0].name, part.features}}));
    if (outputs[0].second.rank() != 2)
      throw everyo::ShapeError(fmt::format("output '{}' is {}; classes need one row of scores for each row of data",
                                           outputs[0].first, everyo::to_string(outputs[0].second.shape())));
    const everyo::Tensor classes = everyo::argmax(outputs[0].second, 1);
    const auto labels = part.targets.data<std::int64_t>();
    const auto predicted = classes.data<std::int64_t>();
    for (std::size_t i = 0; i < labels.size(); ++i) right += predicted[i] == labels[i] ? 1 : 0;
    predictions.insert(predictions.end(), predicted.begin(), predicted.end());
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(rows.size(), 1));
  fmt::print("{} rows of {}: accuracy {:.2f} %\n", rows.size(), source.data, 100 * accuracy);
  return {{"samples", rows.size()}, {"accuracy", accuracy}, {"predictions", predictions}};
}

everyo::NamedTensors run_files(const everyo::OnnxModel& model, const std::vector<std::string>& inputs) {
  everyo::NamedTensors values;
  for (const std::string& input : inputs) {
    const std::size_t at = input.find('=');
    if (at == std::string::npos && (inputs.size() > 1 || model.inputs().size() > 1))
      throw UsageError(
          fmt::format("--input {} names no input, and {} are given of the file's {}; give each as NAME=FILE.npy", input,
                      inputs.size(), model.inputs().size()));
    const std::string name = at == std::string::npos ? model.inputs()[0].name : input.substr(0, at);
    values.emplace_back(name, everyo::load_npy(at == std::string::npos ? input : input.substr(at + 1)));
  }
  return model.run(model.convert(values));
}

int run_model(const Common& common, const Choices& choices) {
  const everyo::OnnxDescription file = everyo::describe_onnx(choices.file);
  fmt::print("{}:\n", choices.file);
  nlohmann::json result = show(file);
  const bool runs = !choices.source.data.empty() || !choices.inputs.empty();
  result["loaded"] = runs || everyo::onnx_available();
  if (!result["loaded"].get<bool>()) {
    fmt::print(
        "  ONNX Runtime is not here, so only the structure is checked; 'everyo doctor' says where it is looked for\n");
    if (common.json) print_json(result);
    return success;
  }
  const everyo::OnnxModel model(choices.file);
  if (!choices.source.data.empty()) result.update(classify(model, choices.source));
  if (!choices.inputs.empty()) {
    const everyo::NamedTensors outputs = run_files(model, choices.inputs);
    for (const auto& [name, value] : outputs) fmt::print("{}: {}\n", name, everyo::to_string(value));
    if (!choices.output.empty()) everyo::save_safetensors(choices.output, outputs);
  }
  if (common.json) print_json(result);
  return success;
}

}  // namespace

Command add_run_onnx(CLI::App& program, Common& common) {
  CLI::App* app =
      program.add_subcommand("run-onnx", "show what an ONNX file takes and gives, and run it in ONNX Runtime");
  const auto choices = std::make_shared<Choices>();
  app->add_option("file", choices->file, "the ONNX file")->required();
  app->add_option("--input", choices->inputs, "NAME=FILE.npy: one of its inputs; FILE.npy when it has one");
  app->add_option("-o,--output", choices->output, "safetensors file for the outputs of --input");
  app->add_option("--data", choices->source.data, "labelled rows to classify, as for evaluate")->check(data_source());
  app->add_option("--labels", choices->source.labels, "file with the labels of a --data file of .npy or IDX");
  app->add_option("--target", choices->source.target, "column of a .csv file with the labels; without it the last");
  return {app, [&common, choices, app] {
            for (const char* name : {"--labels", "--target"})
              if (app->count(name) > 0 && app->count("--data") == 0)
                throw UsageError(fmt::format("{} goes with --data FILE; add it, or leave it out", name));
            if (app->count("--output") > 0 && app->count("--input") == 0)
              throw UsageError("--output keeps the outputs of --input FILE.npy; add it, or leave it out");
            return run_model(common, *choices);
          }};
}

}  // namespace cli
