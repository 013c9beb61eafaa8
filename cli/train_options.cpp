#include "cli/train_options.h"

#include <limits>

#include "everyo/data.h"
#include "everyo/train.h"

namespace cli {
namespace {

constexpr std::int64_t many = 1'000'000'000, most_shards = 65'536;

}  // namespace

TrainRun::TrainRun(CLI::App& app) : settings(app) {
  using enum Settings::OnResume;
  TrainChoices& c = choices;
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
  settings.add("epochs", &c.epochs, "passes over the data", free)->check(whole_number(1, many))->capture_default_str();
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
  settings.add("workers", &c.workers, "ranks that train together, each on a part of every batch", free)
      ->check(whole_number(1, 256))
      ->capture_default_str();
  settings.add("transport", &c.transport, "what workers are: threads, or processes that share memory", free)
      ->check(one_of({"threads", "shm"}))
      ->capture_default_str();
  settings
      .add("virtual-shards", &c.virtual_shards,
           "parts of a batch that workers share out: the same bits for any number of workers; 0: none")
      ->check(whole_number(0, most_shards))
      ->capture_default_str();
  settings
      .add("loader-workers", &c.loader_workers, "threads of a worker that make batches ahead; 0: each when needed",
           free)
      ->check(whole_number(0, everyo::most_loader_workers))
      ->capture_default_str();
  settings.add("seed", &c.seed, "of weights, order of samples, and dropout")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--config", c.config, "JSON file with options by name, as a run's settings.json; flags come first");
  app.add_option("--out", c.out,
                 "folder for the model, its settings and metrics, and checkpoints; a finished run in it is replaced");
  app.add_flag("--digests", c.digests, "keep a digest of every tensor after each step in --out, for everyo diff");
  app.add_flag("--resume", c.resume, "go on with the run in --out, from its newest checkpoint");
}

}  // namespace cli
