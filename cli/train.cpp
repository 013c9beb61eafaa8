#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/terminal.h"
#include "everyo/data.h"
#include "everyo/io.h"
#include "everyo/isa.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace cli {
namespace {

struct Choices {
  std::string data = "digits", model = "mlp", optimizer = "adam", out;
  std::int64_t epochs = 30, batch = 32;
  std::uint64_t seed = 0;
  std::optional<double> lr;
};

/// The folder of a run. metrics.jsonl grows a line an epoch; model.safetensors, then config.json come at the end, so a
/// folder with a config.json holds a whole run and one without it the remains of a run that stopped.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (!error) std::filesystem::remove(path_ / config_name, error);  // of an earlier run
    if (error) throw everyo::FileError(fmt::format("--out {}: cannot be used: {}", path_.string(), error.message()));
    metrics_.open(path_ / metrics_name, std::ios::trunc);
    check(metrics_, metrics_name);
  }
  void add_metrics(const nlohmann::json& row) {
    metrics_ << row.dump() << '\n' << std::flush;
    check(metrics_, metrics_name);
  }
  void save(everyo::ModuleBase& model, const nlohmann::json& config) {
    everyo::save_safetensors(path_ / "model.safetensors", model.state_dict());
    const std::filesystem::path unfinished = path_ / fmt::format("{}.part", config_name);
    std::ofstream file(unfinished, std::ios::trunc);
    file << config.dump(2) << '\n' << std::flush;
    check(file, config_name);
    std::filesystem::rename(unfinished, path_ / config_name);
  }

 private:
  static constexpr const char *config_name = "config.json", *metrics_name = "metrics.jsonl";
  void check(const std::ofstream& file, std::string_view name) const {
    if (!file) throw everyo::FileError(fmt::format("--out {}: {} cannot be written", path_.string(), name));
  }
  std::filesystem::path path_;
  std::ofstream metrics_;
};

nlohmann::json to_json(const everyo::EpochMetrics& m) {
  return {{"epoch", m.epoch},
          {"samples", m.samples},
          {"loss", m.loss},
          {"accuracy", m.accuracy},
          {"learning_rate", m.learning_rate},
          {"seconds", m.seconds},
          {"samples_per_second", m.samples_per_second}};
}

int train(const Common& common, const Choices& choices) {
  note_interrupts();
  const everyo::Split data = everyo::digits_split();
  const everyo::ModelOptions sizes{.inputs = data.train.features.shape()[1], .classes = 10, .seed = choices.seed};
  const std::unique_ptr<everyo::ModuleBase> model = everyo::make_model(choices.model, sizes);
  const std::unique_ptr<everyo::Optimizer> optimizer =
      everyo::make_optimizer(choices.optimizer, model->parameters(), choices.lr);
  everyo::Trainer trainer(
      *model, *optimizer,
      [](const everyo::Tensor& logits, const everyo::Tensor& labels) { return everyo::cross_entropy(logits, labels); },
      {.epochs = choices.epochs, .seed = choices.seed});
  everyo::Loader loader(data.train, {.batch = choices.batch, .shuffle = true, .seed = choices.seed});
  std::optional<RunFolder> out;  // from here on an earlier run's record there is gone
  if (!choices.out.empty()) out.emplace(choices.out);
  fmt::print("{} on {}: {} parameters, {} samples, batch {}, {} with learning rate {:g}\n", choices.model, choices.data,
             model->num_parameters(), data.train.size(), choices.batch, choices.optimizer, optimizer->lr());

  everyo::TrainResult result;
  {
    Progress progress;
    result = trainer.fit(
        loader,
        [&](const everyo::TrainProgress& p) {
          progress.show({p.epoch, p.epochs, p.step, p.steps, p.loss, p.accuracy, p.samples_per_second, p.seconds_left});
          return !was_interrupted();
        },
        [&](const everyo::EpochMetrics& row) {
          if (out) out->add_metrics(to_json(row));
        });
  }
  if (result.stopped) {
    std::fflush(stdout);
    fmt::print(stderr, "everyo: interrupted in epoch {} of {}; no model was saved\n", loader.epoch() + 1,
               choices.epochs);
    return interrupted;
  }

  const everyo::Evaluation test = trainer.evaluate(data.test);
  if (!std::isfinite(test.loss))
    throw everyo::StateError(
        fmt::format("the trained model's loss on the held-out rows is {}; nothing was saved; try a lower learning rate",
                    test.loss));
  const std::string digest = everyo::digest(model->named_parameters());
  if (out)
    out->save(*model, {{"everyo_version", EVERYO_VERSION},
                       {"data", choices.data},
                       {"model", {{"name", choices.model}, {"inputs", sizes.inputs}, {"classes", sizes.classes}}},
                       {"epochs", choices.epochs},
                       {"batch", choices.batch},
                       {"optimizer", {{"name", choices.optimizer}, {"lr", optimizer->lr()}}},
                       {"seed", choices.seed},
                       {"isa", everyo::name_of(everyo::isa())},
                       {"digest", digest},
                       {"test_loss", test.loss},
                       {"test_accuracy", test.accuracy}});
  fmt::print("held-out accuracy {:.2f} %, loss {:.4f} on {} samples, after {:.2f} s of training\n", 100 * test.accuracy,
             test.loss, test.samples, result.seconds);
  if (out)
    fmt::print("saved in {}\n", choices.out);
  else
    fmt::print("not saved; --out FOLDER keeps the model\n");
  if (common.json)
    print_json({{"test_accuracy", test.accuracy},
                {"test_loss", test.loss},
                {"seconds", result.seconds},
                {"out", choices.out.empty() ? nlohmann::json() : nlohmann::json(choices.out)},
                {"digest", digest}});
  return success;
}

}  // namespace

Command add_train(CLI::App& program, Common& common) {
  constexpr std::int64_t many = 1'000'000'000;
  CLI::App* app = program.add_subcommand("train", "train a model and test it on held-out rows");
  const auto choices = std::make_shared<Choices>();
  app->add_option("--data", choices->data, "what to train on")->check(one_of({"digits"}))->capture_default_str();
  app->add_option("--model", choices->model)->check(one_of(everyo::model_names()))->capture_default_str();
  app->add_option("--epochs", choices->epochs, "passes over the data")
      ->check(whole_number(1, many))
      ->capture_default_str();
  app->add_option("--batch", choices->batch, "samples of a step")->check(whole_number(1, many))->capture_default_str();
  app->add_option("--optimizer", choices->optimizer)->check(one_of(everyo::optimizer_names()))->capture_default_str();
  app->add_option("--lr", choices->lr, "learning rate; without it 0.05 for sgd, 0.001 for adam and adamw")
      ->check(number_above_zero());
  app->add_option("--seed", choices->seed, "of weights, order of samples, and dropout")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app->add_option("--out", choices->out, "folder for model.safetensors, config.json and metrics.jsonl");
  return {app, [&common, choices] { return train(common, *choices); }};
}

}  // namespace cli
