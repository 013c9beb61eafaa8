#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/trained_model.h"
#include "everyo/onnx.h"

namespace cli {
namespace {

struct Choices {
  std::string checkpoint, output;
  int opset = everyo::OnnxOptions{}.opset;
  bool check = false, casts = false;
};

int export_model(const Common& common, const Choices& choices) {
  const RunConfig config = read_config(choices.checkpoint);
  const auto model = load_model(choices.checkpoint, config);
  model->eval();
  everyo::OnnxOptions options{.opset = choices.opset, .model_name = config.model, .check = choices.check};
  options.metadata = {{"everyo.digest", config.digest}, {"everyo.model", config.model}};
  if (choices.casts) {
    const everyo::DType dtype = everyo::dtype_of(config.precision);
    if (!everyo::is_half(dtype))
      throw UsageError(fmt::format("--casts goes with a run in float16 or bfloat16; {} is one in {}",
                                   choices.checkpoint, config.precision));
    options.autocast = dtype;
  }
  const everyo::OnnxReport report = everyo::export_onnx(*model, choices.output, {1, config.inputs}, options);
  fmt::print(
      "{}: {} of {}, opset {}, {} nodes, {} weights, {} bytes{}\n", choices.output, config.model, choices.checkpoint,
      report.opset, report.nodes, report.initializers, report.bytes,
      report.loaded ? "; ONNX Runtime loads it" : "; ONNX Runtime is not here, so only its structure is checked");
  nlohmann::json agreements = nlohmann::json::object();
  for (const everyo::OnnxAgreement& agreement : report.agreements) {
    fmt::print("  {}: differs from the model by at most {:.2g}, relative {:.2g}, on random batches of 1, 2, 3 and 7\n",
               agreement.output, agreement.absolute, agreement.relative);
    agreements[agreement.output] = {{"absolute", agreement.absolute}, {"relative", agreement.relative}};
  }
  if (common.json)
    print_json({{"path", choices.output},
                {"opset", report.opset},
                {"nodes", report.nodes},
                {"initializers", report.initializers},
                {"bytes", report.bytes},
                {"loaded", report.loaded},
                {"agreements", agreements}});
  return success;
}

}  // namespace

Command add_export(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("export", "write a trained model as an ONNX file");
  const auto choices = std::make_shared<Choices>();
  app->add_option("checkpoint", choices->checkpoint, "folder that 'everyo train --out' wrote")->required();
  app->add_option("-o,--output", choices->output, "the file to write")->required();
  app->add_option("--opset", choices->opset, "version of ONNX's standard operators")
      ->check(whole_number(everyo::onnx_first_opset, everyo::onnx_last_opset))
      ->capture_default_str();
  app->add_flag("--check", choices->check, "run it in ONNX Runtime and compare; nothing is written if it differs");
  app->add_flag("--casts", choices->casts, "keep the halves that a run in --precision float16 or bfloat16 computes in");
  return {app, [&common, choices] { return export_model(common, *choices); }};
}

}  // namespace cli
