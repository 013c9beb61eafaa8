#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/rows.h"
#include "cli/run_folder.h"
#include "cli/terminal.h"
#include "cli/train_options.h"
#include "cli/workers.h"
#include "everyo/data.h"
#include "everyo/io.h"
#include "everyo/isa.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace cli {
namespace {

/// The newest whole checkpoint of the run.
everyo::Checkpoint checkpoint_of(const TrainChoices& choices) {
  if (choices.out.empty()) throw UsageError("--resume needs --out FOLDER, the folder of the run to go on with");
  std::optional<everyo::Checkpoint> found = RunFolder::checkpoints(choices.out).load_latest();
  if (!found)
    throw everyo::FileError(
        fmt::format("--resume: {} has no whole checkpoint; train without --resume first", choices.out),
        everyo::ErrorKind::file_not_found);
  return *std::move(found);
}

everyo::TrainConfig config_of(const TrainChoices& c, const everyo::Loader& loader, everyo::ProcessGroup* group) {
  everyo::TrainConfig config{.epochs = c.epochs,
                             .seed = static_cast<std::uint64_t>(c.seed),
                             .clip_norm = c.clip,
                             .accumulate = c.accumulate,
                             .precision = everyo::dtype_of(c.precision),
                             .group = group,
                             .virtual_shards = c.virtual_shards};
  if (c.schedule != "constant" || c.warm_up > 0)
    config.schedule = everyo::make_schedule(c.schedule, {.steps = c.epochs * loader.batches(), .warm_up = c.warm_up});
  if (c.validation) config.early_stopping.emplace(everyo::EarlyStoppingOptions{.patience = c.patience});
  return config;
}

everyo::LoaderOptions loader_of(const TrainChoices& c, const everyo::ProcessGroup* group) {
  return {.batch = c.batch,
          .shuffle = true,
          .seed = static_cast<std::uint64_t>(c.seed),
          .rank = group == nullptr ? 0 : group->rank(),
          .world_size = group == nullptr ? 1 : group->world_size(),
          .shards = c.virtual_shards,
          .workers = static_cast<std::int32_t>(c.loader_workers)};
}

nlohmann::json source_of(const Source& source) {
  nlohmann::json json{{"data", source.data}};
  if (!source.labels.empty()) json["labels"] = source.labels;
  if (!source.target.empty()) json["target"] = source.target;
  return json;
}

/// Brings the options together: flags, --config, and those of the run to go on with, whose checkpoint is returned.
std::optional<everyo::Checkpoint> settle(TrainRun& run) {
  const TrainChoices& choices = run.choices;
  if (!choices.config.empty()) run.settings.read(choices.config);
  std::optional<everyo::Checkpoint> from;
  if (choices.resume) {
    from = checkpoint_of(choices);
    run.settings.take_over(from->state.at("run"), choices.out);
  }
  if (choices.patience && !choices.validation)
    throw UsageError("--patience needs --validation FRACTION, the rows whose loss it watches");
  if (choices.virtual_shards > 0 && choices.virtual_shards < choices.workers)
    throw UsageError(fmt::format("--virtual-shards {} are fewer than --workers {}; each worker needs one",
                                 choices.virtual_shards, choices.workers));
  if (choices.digests && choices.out.empty()) throw UsageError("--digests needs --out FOLDER, where they are kept");
  if (!choices.resume && !choices.out.empty() && RunFolder::is_unfinished(choices.out))
    throw UsageError(fmt::format(
        "--out {} holds a run that is not finished; go on with it by --resume, or remove the folder", choices.out));
  return from;
}

struct Rows {
  everyo::ArrayDataset train, validation, test;  ///< validation: none without --validation
  everyo::ModelOptions sizes;                    ///< of a model for them
};

Rows rows_of(const TrainChoices& choices) {
  const everyo::ArrayDataset all = load_rows(choices.source);
  const everyo::ModelOptions sizes{
      .inputs = all.features.shape()[1], .classes = classes_of(all), .seed = static_cast<std::uint64_t>(choices.seed)};
  everyo::Split data = split_rows(choices.source, all);
  if (!choices.validation) return {std::move(data.train), {}, std::move(data.test), sizes};
  everyo::Split parts = hold_out_fraction(data.train, *choices.validation);
  return {std::move(parts.train), std::move(parts.test), std::move(data.test), sizes};
}

/// Refuses what the options and the data, or the run to go on with, do not allow.
void check(const TrainChoices& choices, const Rows& rows, const std::optional<everyo::Checkpoint>& from) {
  everyo::Loader loader(rows.train, loader_of(choices, nullptr));
  if (choices.warm_up >= choices.epochs * loader.batches())
    throw UsageError(fmt::format("--warm-up {} is the whole run: {} epochs of {} steps; take fewer", choices.warm_up,
                                 choices.epochs, loader.batches()));
  if (from) loader.load(from->state.at("trainer").at("loader"));
  if (loader.epoch() + (loader.position() > 0 ? 1 : 0) > choices.epochs)
    throw UsageError(fmt::format("--epochs {}: the run in {} is in epoch {} already; give more, or leave it out",
                                 choices.epochs, choices.out, loader.epoch() + 1));
}

/// What a run is made of on one rank. Its trainer refers to the rest, so it stays where it is.
struct Parts {
  Parts(const TrainChoices& c, const Rows& all, everyo::ProcessGroup* of, RunFolder*& out)
      : rows(all),
        group(of),
        model(everyo::make_model(c.model, rows.sizes)),
        optimizer(everyo::make_optimizer(c.optimizer, model->parameters(), c.lr)),
        rate(optimizer->lr()),
        loader(rows.train, loader_of(c, of)),
        trainer(*model, *optimizer, everyo::CrossEntropyLoss(), with_digests(config_of(c, loader, of), c, out)) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  /// Ranks have the same figures; the first one prints and saves them.
  [[nodiscard]] bool is_first() const { return group == nullptr || group->rank() == 0; }
  /// Steps made and left out.
  [[nodiscard]] std::int64_t tried() const {
    return trainer.steps() + (trainer.scaler() == nullptr ? 0 : trainer.scaler()->skipped_steps());
  }

  const Rows& rows;
  everyo::ProcessGroup* group;
  std::unique_ptr<everyo::ModuleBase> model;
  std::unique_ptr<everyo::Optimizer> optimizer;
  double rate;  // before a schedule has its say
  everyo::Loader loader;
  everyo::Trainer trainer;

 private:
  everyo::TrainConfig with_digests(everyo::TrainConfig config, const TrainChoices& c, RunFolder*& out) const {
    if (c.digests && is_first()) config.digests = [&out](const everyo::StepDigest& digest) { out->add_digest(digest); };
    return config;
  }
};

void announce(const TrainChoices& choices, const Parts& parts, const std::optional<everyo::Checkpoint>& from) {
  fmt::print("{} on {}: {} parameters, {} samples, {} with learning rate {:g}{}\n", choices.model, choices.source.data,
             parts.model->num_parameters(), parts.rows.train.size(), choices.optimizer, parts.rate,
             choices.precision == "float32" ? "" : ", products in " + choices.precision);
  if (choices.virtual_shards == 0)
    fmt::print("effective batch {}\n",
               everyo::to_string(everyo::effective_batch(parts.loader.options(), choices.accumulate)));
  else
    fmt::print("effective batch {} in {} virtual shards, on {} {}\n", parts.loader.options().batch,
               choices.virtual_shards, choices.workers, choices.workers == 1 ? "worker" : "workers");
  if (from) fmt::print("resumed from {} at step {}\n", from->folder.string(), from->step);
}

/// Trains to the end or to an interrupt, and leaves metrics and checkpoints in `out`, if there is one.
everyo::TrainResult fit(const TrainRun& run, Parts& parts, RunFolder* out) {
  everyo::Trainer& trainer = parts.trainer;
  everyo::FitOptions options;
  if (run.choices.validation) options.validation = &parts.rows.validation;
  if (!parts.is_first()) return trainer.fit(parts.loader, options);
  std::optional<std::int64_t> saved_at;
  const auto save = [&](bool is_best) {
    saved_at = trainer.steps();
    everyo::StateTree state;
    state["run"] = run.settings.to_state();
    state["trainer"] = trainer.state(parts.loader);
    out->save_checkpoint(state, trainer.steps(), is_best);
  };
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

int report_interrupted(const TrainChoices& choices, const Parts& parts) {
  std::fflush(stdout);
  const std::string how = choices.out.empty() ? std::string("nothing was saved; --out FOLDER would have")
                                              : fmt::format("go on with: everyo train --resume --out {}", choices.out);
  fmt::print(stderr, "everyo: interrupted in epoch {} of {}; {}\n", parts.loader.epoch() + 1, choices.epochs, how);
  return interrupted;
}

/// Tests the trained model, saves it in `out`, if there is one, and says what came of it.
int finish(const Common& common, const TrainChoices& choices, Parts& parts, RunFolder* out, double seconds) {
  const everyo::Evaluation test = parts.trainer.evaluate(parts.rows.test);
  if (!parts.is_first()) return success;
  if (const everyo::EarlyStopping* const early = parts.trainer.early_stopping(); early && early->best_epoch() > 0)
    fmt::print("{}the validation loss was best in epoch {}, {:.4f}; the model has its weights\n",
               parts.loader.epoch() < choices.epochs ? "stopped early: " : "", early->best_epoch(), early->best());
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
                          {"workers", choices.workers},
                          {"transport", choices.transport},
                          {"virtual_shards", choices.virtual_shards},
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

/// One rank's part of the run, from its model to its exit code.
int work(const Common& common, const TrainRun& run, const Rows& rows, const std::optional<everyo::Checkpoint>& from,
         everyo::ProcessGroup* group) {
  const TrainChoices& choices = run.choices;
  RunFolder* out = nullptr;
  Parts parts(choices, rows, group, out);
  if (from) parts.trainer.load(from->state.at("trainer"), parts.loader);
  std::optional<RunFolder> folder;  // from here on an earlier run's record there is gone
  if (!choices.out.empty() && parts.is_first()) {
    out = &folder.emplace(choices.out, choices.resume, parts.loader.epoch());
    out->save_settings(run.settings.to_json());
    if (choices.digests) out->keep_digests(parts.tried());
  }
  if (parts.is_first()) announce(choices, parts, from);
  const everyo::TrainResult result = fit(run, parts, out);
  if (!result.stopped) return finish(common, choices, parts, out, result.seconds);
  return parts.is_first() ? report_interrupted(choices, parts) : interrupted;
}

int train(const Common& common, TrainRun& run) {
  note_interrupts();
  const std::optional<everyo::Checkpoint> from = settle(run);
  TrainChoices& choices = run.choices;
  if (choices.resume && RunFolder::has_digests(choices.out)) choices.digests = true;
  const Rows rows = rows_of(choices);
  check(choices, rows, from);
  return on_workers({.count = static_cast<int>(choices.workers),
                     .as_threads = choices.transport == "threads",
                     .threads = common.threads},
                    [&](everyo::ProcessGroup* group) { return work(common, run, rows, from, group); });
}

}  // namespace

Command add_train(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("train", "train a model and test it on held-out rows");
  const auto run = std::make_shared<TrainRun>(*app);
  return {app, [&common, run] { return train(common, *run); }};
}

}  // namespace cli
