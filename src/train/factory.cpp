#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "everyo/context.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace everyo::inline v1 {
namespace {

[[noreturn]] void unknown(std::string_view op, std::string_view what, std::string_view name,
                          const std::vector<std::string>& known) {
  throw ValueError(fmt::format("[{}] unknown {} '{}'; known: {}", op, what, name, fmt::join(known, ", ")));
}

std::unique_ptr<ModuleBase> make_mlp(const ModelOptions& options) {
  const std::uint64_t seed = options.seed;
  return std::make_unique<Sequential>(Linear(options.inputs, 128, {.seed = seed}), ReLU(),
                                      Linear(128, 64, {.seed = seed + 1}), ReLU(),
                                      Linear(64, options.classes, {.seed = seed + 2}));
}

std::unique_ptr<ModuleBase> make_cnn(const ModelOptions& options) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const auto side =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(std::clamp<std::int64_t>(options.inputs, 0, most))));
  if (side < 4 || side * side != options.inputs)
    throw ValueError(
        fmt::format("[make_model] cnn takes square images of 4 by 4 pixels or more, not {} inputs", options.inputs));
  const std::uint64_t seed = options.seed;
  const auto convolution = [&](std::int64_t in_channels, std::int64_t out_channels, std::uint64_t layer) {
    return Conv2D(in_channels, out_channels, 3, {.padding = "same", .seed = seed + layer});
  };
  return std::make_unique<Sequential>(Unflatten({side, side, 1}), convolution(1, 32, 0), ReLU(), convolution(32, 32, 1),
                                      ReLU(), MaxPool2D(), convolution(32, 64, 2), ReLU(), MaxPool2D(), Flatten(),
                                      Linear((side / 4) * (side / 4) * 64, options.classes, {.seed = seed + 3}));
}

}  // namespace

ArrayDataset labelled_rows(const Tensor& features, const Tensor& labels) {
  const ArrayDataset both(features, labels);  // the same number of rows
  if (is_floating(labels.dtype()) || labels.dtype() == boolean)
    throw DTypeError(fmt::format("[labelled_rows] labels are {}; give whole numbers, the class of each row",
                                 name_of(labels.dtype())));
  const std::int64_t rows = both.size(), columns = rows == 0 ? 0 : features.size() / rows;
  if (labels.size() != rows)
    throw ShapeError(
        fmt::format("[labelled_rows] labels {} are not one a row; give [N] or [N, 1]", to_string(labels.shape())));
  const NoGrad no_grad;
  const Scoped<&Context::category> category(MemoryCategory::input);
  Tensor x = cast(reshape(features, {rows, columns}), float32);  // [N, D]
  if (features.dtype() == uint8) x = x / 255.0;
  return {std::move(x), cast(reshape(labels, {rows}), int64)};
}

std::vector<std::string> model_names() { return {"mlp", "cnn"}; }

std::unique_ptr<ModuleBase> make_model(std::string_view name, const ModelOptions& options) {
  if (name == "mlp") return make_mlp(options);
  if (name == "cnn") return make_cnn(options);
  unknown("make_model", "model", name, model_names());
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

std::vector<std::string> precision_names() { return {"float32", "float16", "bfloat16"}; }

std::vector<std::string> schedule_names() { return {"constant", "step", "cosine"}; }

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  if (options.steps < 1 || options.warm_up < 0 || options.warm_up >= options.steps)
    throw ValueError(
        fmt::format("[make_schedule] a warm-up of {} steps in a run of {}; the run has at least 1 step, and "
                    "more than its warm-up",
                    options.warm_up, options.steps));
  const std::int64_t rest = options.steps - options.warm_up;
  Schedule schedule;
  if (name == "constant")
    schedule = constant_schedule();
  else if (name == "step")
    schedule = step_schedule(rest / 3 + (rest % 3 == 0 ? 0 : 1), 0.1);
  else if (name == "cosine")
    schedule = cosine_schedule(rest);
  else
    unknown("make_schedule", "schedule", name, schedule_names());
  return options.warm_up == 0 ? schedule : warm_up(options.warm_up, std::move(schedule));
}

}  // namespace everyo::inline v1
