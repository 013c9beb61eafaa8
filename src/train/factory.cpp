#include <fmt/format.h>

#include "everyo/train.h"

namespace everyo::inline v1 {
namespace {

[[noreturn]] void unknown(std::string_view op, std::string_view what, std::string_view name,
                          const std::vector<std::string>& known) {
  throw ValueError(fmt::format("[{}] unknown {} '{}'; known: {}", op, what, name, fmt::join(known, ", ")));
}

}  // namespace

std::vector<std::string> model_names() { return {"mlp"}; }

std::unique_ptr<ModuleBase> make_model(std::string_view name, const ModelOptions& options) {
  if (name != "mlp") unknown("make_model", "model", name, model_names());
  const std::uint64_t seed = options.seed;
  return std::make_unique<Sequential>(Linear(options.inputs, 128, {.seed = seed}), ReLU(),
                                      Linear(128, 64, {.seed = seed + 1}), ReLU(),
                                      Linear(64, options.classes, {.seed = seed + 2}));
}

std::vector<std::string> optimizer_names() { return {"sgd", "adam", "adamw"}; }

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Tensor> parameters,
                                          std::optional<double> learning_rate) {
  if (name == "sgd")
    return std::make_unique<SGD>(std::move(parameters),
                                 SGDOptions{.lr = learning_rate.value_or(0.05), .momentum = 0.9});
  if (name == "adam")
    return std::make_unique<Adam>(std::move(parameters), AdamOptions{.lr = learning_rate.value_or(1e-3)});
  if (name == "adamw")
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = learning_rate.value_or(1e-3)});
  unknown("make_optimizer", "optimizer", name, optimizer_names());
}

}  // namespace everyo::inline v1
