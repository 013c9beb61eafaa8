// A run that is stopped and goes on: micro-batches, a schedule, validation, early stopping, checkpoints. It ends
// with the bits of a run that never stopped. Prints:
//
//     effective batch 60 = micro-batch 15 x accumulation 4 x ranks 1
//     stopped after 120 steps, in epoch 6
//     goes on after 120 steps
//     stopped early; the best epoch is 12 with accuracy 0.9700
//     held-out: loss 0.1270, accuracy 97.22 %
//     stopped early; the best epoch is 12 with accuracy 0.9700
//     held-out: loss 0.1270, accuracy 97.22 %
//     the run that never stopped has the same weights
#include <everyo/everyo.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>

namespace eo = everyo;
constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

// Trains until it ends or `last_step` is made, from the newest checkpoint in the folder if there is one; the digest of
// the weights, "" when it did not end.
std::string train(const std::filesystem::path& folder, std::int64_t last_step) {
  const eo::Split digits = eo::digits_split();             // 1437 rows to train on, 360 held out
  const eo::Split rows = eo::hold_out(digits.train, 200);  // of the former, 200 to validate on
  eo::Loader loader(rows.train, {.batch = 60, .shuffle = true, .seed = 2});
  eo::Sequential model(eo::Linear(64, 128, {.seed = 5}), eo::ReLU(), eo::Linear(128, 64, {.seed = 6}), eo::ReLU(),
                       eo::Linear(64, 10, {.seed = 7}));
  eo::AdamW optimizer(model.parameters());
  constexpr std::int64_t epochs = 40;
  eo::Trainer trainer(model, optimizer, eo::CrossEntropyLoss(),
                      {.epochs = epochs,
                       .clip_norm = 1.0,
                       .accumulate = 4,
                       .schedule = eo::make_schedule("cosine", {.steps = epochs * loader.batches(), .warm_up = 20}),
                       .early_stopping = eo::EarlyStoppingOptions{
                           .monitor = "val_accuracy", .patience = 4, .mode = eo::MonitorMode::max}});

  eo::CheckpointStore store(folder);  // the newest three checkpoints, and the best
  if (const auto checkpoint = store.load_latest()) {
    trainer.load(checkpoint->state, loader);
    std::printf("goes on after %d steps\n", static_cast<int>(trainer.steps()));
  }
  const auto save = [&](bool best) { store.save(trainer.state(loader), trainer.steps(), best); };
  const eo::TrainResult result =
      trainer.fit(loader, {.progress = [&](const eo::TrainProgress&) { return trainer.steps() != last_step; },
                           .epoch_end = [&](const eo::EpochMetrics& epoch) { save(epoch.best); },
                           .validation = &rows.test});
  if (result.stopped) {  // by `progress`
    save(false);
    std::printf("stopped after %d steps, in epoch %d\n", static_cast<int>(trainer.steps()),
                static_cast<int>(loader.epoch()) + 1);
    return "";
  }
  std::printf("%s; the best epoch is %d with accuracy %.4f\n", result.early ? "stopped early" : "ended",
              static_cast<int>(trainer.early_stopping()->best_epoch()), trainer.early_stopping()->best());
  const eo::Evaluation test = trainer.evaluate(digits.test);  // with the best epoch's weights
  std::printf("held-out: loss %.4f, accuracy %.2f %%\n", test.loss, 100 * test.accuracy);
  return eo::digest(model.state_dict());
}

int main() try {
  const auto folder = std::filesystem::temp_directory_path() / "everyo_example_resume";
  std::filesystem::remove_all(folder);
  std::printf("effective batch %s\n", eo::to_string(eo::effective_batch({.batch = 60}, 4)).c_str());
  train(folder / "stopped", 120);
  const std::string resumed = train(folder / "stopped", no_end);
  const std::string whole = train(folder / "whole", no_end);
  std::filesystem::remove_all(folder);
  std::printf("the run that never stopped has %s weights\n", resumed == whole ? "the same" : "other");
} catch (const eo::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
