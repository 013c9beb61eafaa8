#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/run_folder.h"
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
  bool resume = false;
};

/// What a run may not change when it is resumed, as its checkpoints keep it.
everyo::StateTree to_state(const Choices& c) {
  everyo::StateTree tree;
  tree["data"] = c.data;
  tree["model"] = c.model;
  tree["optimizer"] = c.optimizer;
  tree["batch"] = c.batch;
  tree["seed"] = static_cast<std::int64_t>(c.seed);
  if (c.lr) tree["lr"] = *c.lr;
  return tree;
}

/// Takes the choices of the run that is resumed; one that was given must be the run's own.
void take_over(Choices& choices, const everyo::StateTree& run, const CLI::App& app) {
  const auto take = [&](const char* option, auto& own, const auto& saved) {
    if (app.get_option(option)->count() > 0 && own != saved)
      throw UsageError(fmt::format("{} {} is not what the run in {} was begun with, {}; leave it out", option, own,
                                   choices.out, saved));
    own = saved;
  };
  take("--data", choices.data, run.get<std::string>("data"));
  take("--model", choices.model, run.get<std::string>("model"));
  take("--optimizer", choices.optimizer, run.get<std::string>("optimizer"));
  take("--batch", choices.batch, run.get<std::int64_t>("batch"));
  take("--seed", choices.seed, static_cast<std::uint64_t>(run.get<std::int64_t>("seed")));
  const bool with_rate = run.contains("lr");
  if (choices.lr && (!with_rate || *choices.lr != run.get<double>("lr")))
    throw UsageError(
        fmt::format("--lr {} is not what the run in {} was begun with; leave it out", *choices.lr, choices.out));
  if (with_rate) choices.lr = run.get<double>("lr");
}

/// The newest whole checkpoint of the run.
everyo::Checkpoint checkpoint_of(const Choices& choices) {
  if (choices.out.empty()) throw UsageError("--resume needs --out FOLDER, the folder of the run to go on with");
  std::optional<everyo::Checkpoint> found = RunFolder::checkpoints(choices.out).load_latest();
  if (!found)
    throw everyo::FileError(
        fmt::format("--resume: {} has no whole checkpoint; train without --resume first", choices.out),
        everyo::ErrorKind::file_not_found);
  return *std::move(found);
}

int train(const Common& common, Choices choices, const CLI::App& app) {
  note_interrupts();
  std::optional<everyo::Checkpoint> from;
  if (choices.resume) {
    from = checkpoint_of(choices);
    take_over(choices, from->state.at("run"), app);
  }
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
  if (from) trainer.load(from->state.at("trainer"), loader);
  std::optional<RunFolder> out;  // from here on an earlier run's record there is gone
  if (!choices.out.empty()) out.emplace(choices.out, choices.resume, loader.epoch());
  const auto save = [&](bool always) {
    if (!out || (!always && !out->is_time())) return;
    everyo::StateTree state;
    state["run"] = to_state(choices);
    state["trainer"] = trainer.state(loader);
    out->save_checkpoint(state, trainer.steps());
  };
  fmt::print("{} on {}: {} parameters, {} samples, batch {}, {} with learning rate {:g}\n", choices.model, choices.data,
             model->num_parameters(), data.train.size(), choices.batch, choices.optimizer, optimizer->lr());
  if (from) fmt::print("resumed from {} at step {}\n", from->folder.string(), from->step);

  everyo::TrainResult result;
  {
    Progress progress;
    const auto show = [&](const everyo::TrainProgress& p) {
      progress.show({p.epoch, p.epochs, p.step, p.steps, p.loss, p.accuracy, p.samples_per_second, p.seconds_left});
      return !was_interrupted();
    };
    const auto note = [&](const everyo::EpochMetrics& row) {
      if (out) out->add_metrics(row);
      save(false);
    };
    result = trainer.fit(loader, {.progress = show, .epoch_end = note});
  }
  if (result.stopped) {
    save(true);
    std::fflush(stdout);
    const std::string how = out ? fmt::format("go on with: everyo train --resume --out {}", choices.out)
                                : std::string("nothing was saved; --out FOLDER would have");
    fmt::print(stderr, "everyo: interrupted in epoch {} of {}; {}\n", loader.epoch() + 1, choices.epochs, how);
    return interrupted;
  }

  const everyo::Evaluation test = trainer.evaluate(data.test);
  if (!std::isfinite(test.loss))
    throw everyo::StateError(
        fmt::format("the trained model's loss on the held-out rows is {}; nothing was saved; try a lower learning rate",
                    test.loss));
  const std::string digest = everyo::digest(model->named_parameters());
  save(true);
  if (out)
    out->finish(*model, {{"everyo_version", EVERYO_VERSION},
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
  app->add_option("--out", choices->out, "folder for the model, config.json, metrics.jsonl and checkpoints");
  app->add_flag("--resume", choices->resume, "go on with the run in --out, from its newest checkpoint");
  return {app, [&common, choices, app] { return train(common, *choices, *app); }};
}

}  // namespace cli
