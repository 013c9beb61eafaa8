#include "cli/trained_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "everyo/io.h"
#include "everyo/precision.h"
#include "everyo/train.h"

namespace cli {

RunConfig read_config(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw everyo::FileError(
        fmt::format("{} is no folder; give the folder that 'everyo train --out' wrote", folder.string()),
        everyo::ErrorKind::file_not_found);
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path, ignored))
    throw everyo::FileError(
        fmt::format(
            "{} not found; a folder without it holds no whole run: finish it, everyo train --resume --out {}, or "
            "train again",
            path.string(), folder.string()),
        everyo::ErrorKind::file_not_found);
  const std::string text = read_text(path, path.string());
  const auto damaged = [&](std::string_view what) {
    return everyo::FileError(fmt::format("{} is damaged: {}; train again with --out", path.string(), what));
  };
  try {
    const nlohmann::json config = everyo::base::parse_json(text, fmt::format("{} is damaged", path.string()));
    const nlohmann::json& model = config.at("model");
    for (const char* key : {"inputs", "classes"})
      if (!model.at(key).is_number_integer()) throw damaged(fmt::format("model.{} is no whole number", key));
    const Source source{config.value("data", "digits"), config.value("labels", ""), config.value("target", "")};
    std::string precision = config.value("precision", "float32");
    const std::vector<std::string> known = everyo::precision_names();
    if (std::ranges::find(known, precision) == known.end())
      throw damaged(
          fmt::format("precision is '{}', not one of {}", everyo::base::printable(precision), fmt::join(known, ", ")));
    return {model.at("name").get<std::string>(),    source,
            model.at("inputs").get<std::int64_t>(), model.at("classes").get<std::int64_t>(),
            config.at("digest").get<std::string>(), std::move(precision)};
  } catch (const nlohmann::json::exception& error) {
    throw damaged(error.what());
  }
}

void require_fit(const std::filesystem::path& folder, const RunConfig& config, std::int64_t inputs,
                 std::int64_t classes) {
  if (config.inputs == inputs && config.classes >= classes) return;  // data may lack some classes
  throw everyo::FileError(
      fmt::format("{} is of a model of {} inputs and {} classes, and the data has {} and {}; "
                  "evaluate on what the model was trained for",
                  (folder / "config.json").string(), config.inputs, config.classes, inputs, classes),
      everyo::ErrorKind::shape);
}

std::unique_ptr<everyo::ModuleBase> load_model(const std::filesystem::path& folder, const RunConfig& config) {
  const std::string where = (folder / "config.json").string();
  const std::vector<std::string> known = everyo::model_names();
  if (std::find(known.begin(), known.end(), config.model) == known.end())
    throw everyo::FileError(fmt::format("{} names the model {}, which is unknown; known: {}", where,
                                        nlohmann::json(config.model).dump(-1, ' ', true), fmt::join(known, ", ")));
  const std::filesystem::path file = folder / "model.safetensors";
  const everyo::SafetensorsFile saved = everyo::load_safetensors(file);
  std::int64_t numbers = 0;
  for (const auto& [name, tensor] : saved.tensors) numbers += tensor.size();
  // Sizes are checked against the weights before a model of them is made.
  if (config.inputs < 1 || config.classes < 1 || config.inputs > numbers || config.classes > numbers)
    throw everyo::FileError(
        fmt::format("{} is of a model of {} inputs and {} classes, and {} holds {} numbers; the two are of "
                    "different runs",
                    where, config.inputs, config.classes, file.string(), numbers));
  auto model = everyo::make_model(config.model, {.inputs = config.inputs, .classes = config.classes});
  try {
    model->load_state_dict(saved.tensors);
  } catch (const everyo::StateError& error) {
    throw everyo::FileError(
        fmt::format("{} does not fit the model '{}': {}", file.string(), config.model, error.what()));
  }
  if (const std::string digest = everyo::digest(model->named_parameters()); digest != config.digest)
    throw everyo::FileError(fmt::format("{} has the digest {}, and {} says {}; the two are of different runs",
                                        file.string(), digest, where, config.digest));
  return model;
}

}  // namespace cli
