#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/rows.h"
#include "cli/run_folder.h"
#include "cli/settings.h"
#include "cli/terminal.h"
#include "everyo/data.h"
#include "everyo/io.h"
#include "everyo/isa.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace cli {
namespace {

constexpr std::int64_t many = 1'000'000'000;

struct Choices {
  Source source;
  std::string model = "mlp", optimizer = "adam", schedule = "constant", precision = "float32", out, config;
  std::int64_t epochs = 30, batch = 32, accumulate = 1, seed = 0, warm_up = 0, workers = 0;
  std::optional<double> lr, clip, validation;
  std::optional<std::int64_t> patience;
  bool resume = false;
};

/// The options of a run, and the values they have.
struct Run {
  explicit Run(CLI::App& app) : settings(app) {
    using enum Settings::OnResume;
    Choices& c = choices;
    settings
        .add("data", &c.source.data,
             "what to train on: digits, a .csv or packed file, or one of .npy or IDX with --labels")
        ->check(data_source())
        ->capture_default_str();
    settings.add("labels", &c.source.labels, "file with the labels of a --data file of .npy or IDX");
    settings.add("target", &c.source.target, "column of a .csv file with the labels, by its name; without it the last");
    settings.add("model", &c.model, "mlp: a network of rows; cnn: of square images, given as rows of pixels")
        ->check(one_of(everyo::model_names()))
        ->capture_default_str();
    settings.add("epochs", &c.epochs, "passes over the data", free)
        ->check(whole_number(1, many))
        ->capture_default_str();
    settings.add("batch", &c.batch, "samples of a step")->check(whole_number(1, many))->capture_default_str();
    settings.add("accumulate", &c.accumulate, "micro-batches that a batch is cut into, to save memory", free)
        ->check(whole_number(1, many))
        ->capture_default_str();
    settings.add("optimizer", &c.optimizer, "what makes steps of gradients; sgd has momentum 0.9")
        ->check(one_of(everyo::optimizer_names()))
        ->capture_default_str();
    settings.add("lr", &c.lr, "learning rate; without it 0.05 for sgd, 0.001 for adam and adamw")
        ->check(number_above_zero());
    settings.add("schedule", &c.schedule, "how the learning rate falls over the run")
        ->check(one_of(everyo::schedule_names()))
        ->capture_default_str();
    settings.add("warm-up", &c.warm_up, "steps in which the learning rate rises first")
        ->check(whole_number(0, many))
        ->capture_default_str();
    settings
        .add("precision", &c.precision,
             "of matrix products and convolutions; weights are float32 in each, and float16 scales the loss")
        ->check(one_of(everyo::precision_names()))
        ->capture_default_str();
    settings.add("clip", &c.clip, "largest norm of all gradients together")->check(number_above_zero());
    settings
        .add("validation", &c.validation,
             "fraction of the rows to validate on; the run ends with the weights of the best epoch")
        ->check(fraction());
    settings.add("patience", &c.patience, "stop after more epochs than this without a better validation loss", free)
        ->check(whole_number(0, many));
    settings.add("workers", &c.workers, "threads that make batches ahead; 0: each when it is needed", free)
        ->check(whole_number(0, everyo::most_loader_workers))
        ->capture_default_str();
    settings.add("seed", &c.seed, "of weights, order of samples, and dropout")
        ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
        ->capture_default_str();
    app.add_option("--config", c.config, "JSON file with options by name, as a run's settings.json; flags come first");
    app.add_option("--out", c.out,
                   "folder for the model, its settings and metrics, and checkpoints; a finished run in it is replaced");
    app.add_flag("--resume", c.resume, "go on with the run in --out, from its newest checkpoint");
  }
  Choices choices;
  Settings settings;
};

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

everyo::TrainConfig config_of(const Choices& c, const everyo::Loader& loader) {
  const std::int64_t steps = c.epochs * loader.batches();
  if (c.warm_up >= steps)
    throw UsageError(fmt::format("--warm-up {} is the whole run: {} epochs of {} steps; take fewer", c.warm_up,
                                 c.epochs, loader.batches()));
  everyo::TrainConfig config{.epochs = c.epochs,
                             .seed = static_cast<std::uint64_t>(c.seed),
                             .clip_norm = c.clip,
                             .accumulate = c.accumulate,
                             .precision = everyo::dtype_of(c.precision)};
  if (c.schedule != "constant" || c.warm_up > 0)
    config.schedule = everyo::make_schedule(c.schedule, {.steps = steps, .warm_up = c.warm_up});
  if (c.validation) config.early_stopping.emplace(everyo::EarlyStoppingOptions{.patience = c.patience});
  return config;
}

nlohmann::json source_of(const Source& source) {
  nlohmann::json json{{"data", source.data}};
  if (!source.labels.empty()) json["labels"] = source.labels;
  if (!source.target.empty()) json["target"] = source.target;
  return json;
}

/// Brings the options together: flags, --config, and those of the run to go on with, whose checkpoint is returned.
std::optional<everyo::Checkpoint> settle(Run& run) {
  const Choices& choices = run.choices;
  if (!choices.config.empty()) run.settings.read(choices.config);
  std::optional<everyo::Checkpoint> from;
  if (choices.resume) {
    from = checkpoint_of(choices);
    run.settings.take_over(from->state.at("run"), choices.out);
  }
  if (choices.patience && !choices.validation)
    throw UsageError("--patience needs --validation FRACTION, the rows whose loss it watches");
  if (!choices.resume && !choices.out.empty() && RunFolder::is_unfinished(choices.out))
    throw UsageError(fmt::format(
        "--out {} holds a run that is not finished; go on with it by --resume, or remove the folder", choices.out));
  return from;
}

struct Rows {
  everyo::ArrayDataset train, validation, test;  ///< validation: none without --validation
  everyo::ModelOptions sizes;                    ///< of a model for them
};

Rows rows_of(const Choices& choices) {
  const everyo::ArrayDataset all = load_rows(choices.source);
  const everyo::ModelOptions sizes{
      .inputs = all.features.shape()[1], .classes = classes_of(all), .seed = static_cast<std::uint64_t>(choices.seed)};
  everyo::Split data = split_rows(choices.source, all);
  if (!choices.validation) return {std::move(data.train), {}, std::move(data.test), sizes};
  everyo::Split parts = hold_out_fraction(data.train, *choices.validation);
  return {std::move(parts.train), std::move(parts.test), std::move(data.test), sizes};
}

/// What a run is made of. Its trainer refers to the rest, so it stays where it is.
struct Parts {
  explicit Parts(const Choices& c)
      : rows(rows_of(c)),
        model(everyo::make_model(c.model, rows.sizes)),
        optimizer(everyo::make_optimizer(c.optimizer, model->parameters(), c.lr)),
        rate(optimizer->lr()),
        loader(rows.train, {.batch = c.batch,
                            .shuffle = true,
                            .seed = static_cast<std::uint64_t>(c.seed),
                            .workers = static_cast<std::int32_t>(c.workers)}),
        trainer(*model, *optimizer, everyo::CrossEntropyLoss(), config_of(c, loader)) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Rows rows;
  std::unique_ptr<everyo::ModuleBase> model;
  std::unique_ptr<everyo::Optimizer> optimizer;
  double rate;  // before a schedule has its say
  everyo::Loader loader;
  everyo::Trainer trainer;
};

void announce(const Choices& choices, const Parts& parts, const std::optional<everyo::Checkpoint>& from) {
  fmt::print("{} on {}: {} parameters, {} samples, {} with learning rate {:g}{}\n", choices.model, choices.source.data,
             parts.model->num_parameters(), parts.rows.train.size(), choices.optimizer, parts.rate,
             choices.precision == "float32" ? "" : ", products in " + choices.precision);
  fmt::print("effective batch {}\n",
             everyo::to_string(everyo::effective_batch(parts.loader.options(), choices.accumulate)));
  if (from) fmt::print("resumed from {} at step {}\n", from->folder.string(), from->step);
}

/// Trains to the end or to an interrupt, and leaves metrics and checkpoints in `out`, if there is one.
everyo::TrainResult fit(const Run& run, Parts& parts, RunFolder* out) {
  everyo::Trainer& trainer = parts.trainer;
  std::optional<std::int64_t> saved_at;
  const auto save = [&](bool is_best) {
    saved_at = trainer.steps();
    everyo::StateTree state;
    state["run"] = run.settings.to_state();
    state["trainer"] = trainer.state(parts.loader);
    out->save_checkpoint(state, trainer.steps(), is_best);
  };
  everyo::FitOptions options;
  if (run.choices.validation) options.validation = &parts.rows.validation;
  everyo::TrainResult result;
  {
    Progress progress;
    options.progress = [&](const everyo::TrainProgress& p) {
      progress.show(p);
      return !was_interrupted();
    };
    options.epoch_end = [&](const everyo::EpochMetrics& row) {
      if (row.validation) progress.show_validation(row.validation->loss, row.validation->accuracy, row.best);
      if (out == nullptr) return;
      out->add_metrics(row);
      // What the run ends with has the best weights, and is no place to go on from.
      const bool last = row.epoch == run.choices.epochs ||
                        (trainer.early_stopping() != nullptr && trainer.early_stopping()->should_stop());
      if (row.best || last || out->is_time()) save(row.best);
    };
    result = trainer.fit(parts.loader, options);
  }
  // The end of an epoch may have been saved already, as the best.
  if (result.stopped && out != nullptr && saved_at != trainer.steps()) save(false);
  return result;
}

int report_interrupted(const Choices& choices, const Parts& parts) {
  std::fflush(stdout);
  const std::string how = choices.out.empty() ? std::string("nothing was saved; --out FOLDER would have")
                                              : fmt::format("go on with: everyo train --resume --out {}", choices.out);
  fmt::print(stderr, "everyo: interrupted in epoch {} of {}; {}\n", parts.loader.epoch() + 1, choices.epochs, how);
  return interrupted;
}

/// Tests the trained model, saves it in `out`, if there is one, and says what came of it.
int finish(const Common& common, const Choices& choices, Parts& parts, RunFolder* out, double seconds) {
  if (const everyo::EarlyStopping* const early = parts.trainer.early_stopping(); early && early->best_epoch() > 0)
    fmt::print("{}the validation loss was best in epoch {}, {:.4f}; the model has its weights\n",
               parts.loader.epoch() < choices.epochs ? "stopped early: " : "", early->best_epoch(), early->best());
  const everyo::Evaluation test = parts.trainer.evaluate(parts.rows.test);
  if (!std::isfinite(test.loss))
    throw everyo::StateError(fmt::format(
        "the trained model's loss on the held-out rows is {}; it was not saved; try a lower learning rate", test.loss));
  const std::string digest = everyo::digest(parts.model->named_parameters());
  if (out != nullptr) {
    const everyo::ModelOptions& sizes = parts.rows.sizes;
    nlohmann::json config{{"everyo_version", EVERYO_VERSION},
                          {"model", {{"name", choices.model}, {"inputs", sizes.inputs}, {"classes", sizes.classes}}},
                          {"epochs", choices.epochs},
                          {"batch", choices.batch},
                          {"optimizer", {{"name", choices.optimizer}, {"lr", parts.rate}}},
                          {"precision", choices.precision},
                          {"seed", choices.seed},
                          {"isa", everyo::name_of(everyo::isa())},
                          {"digest", digest},
                          {"test_loss", test.loss},
                          {"test_accuracy", test.accuracy}};
    config.update(source_of(choices.source));
    out->finish(*parts.model, config);
  }
  fmt::print("held-out accuracy {:.2f} %, loss {:.4f} on {} samples, after {:.2f} s of training\n", 100 * test.accuracy,
             test.loss, test.samples, seconds);
  if (out != nullptr)
    fmt::print("saved in {}\n", choices.out);
  else
    fmt::print("not saved; --out FOLDER keeps the model\n");
  if (common.json)
    print_json({{"test_accuracy", test.accuracy},
                {"test_loss", test.loss},
                {"seconds", seconds},
                {"out", choices.out.empty() ? nlohmann::json() : nlohmann::json(choices.out)},
                {"digest", digest}});
  return success;
}

int train(const Common& common, Run& run) {
  note_interrupts();
  const Choices& choices = run.choices;
  const std::optional<everyo::Checkpoint> from = settle(run);
  Parts parts(choices);
  everyo::Loader& loader = parts.loader;
  if (from) parts.trainer.load(from->state.at("trainer"), loader);
  if (loader.epoch() + (loader.position() > 0 ? 1 : 0) > choices.epochs)
    throw UsageError(fmt::format("--epochs {}: the run in {} is in epoch {} already; give more, or leave it out",
                                 choices.epochs, choices.out, loader.epoch() + 1));
  std::optional<RunFolder> folder;  // from here on an earlier run's record there is gone
  if (!choices.out.empty()) {
    folder.emplace(choices.out, choices.resume, loader.epoch());
    folder->save_settings(run.settings.to_json());
  }
  RunFolder* const out = folder ? &*folder : nullptr;
  announce(choices, parts, from);
  const everyo::TrainResult result = fit(run, parts, out);
  if (result.stopped) return report_interrupted(choices, parts);
  return finish(common, choices, parts, out, result.seconds);
}

}  // namespace

Command add_train(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("train", "train a model and test it on held-out rows");
  const auto run = std::make_shared<Run>(*app);
  return {app, [&common, run] { return train(common, *run); }};
}

}  // namespace cli
