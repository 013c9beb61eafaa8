#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/data.h"
#include "everyo/nn.h"
#include "everyo/optim.h"

// The loop around a model. Letters: N rows of a batch, K classes.
namespace everyo::inline v1 {

/// Mean loss of a batch: prediction [N, ..], targets [N, ..] -> one element.
using LossFunction = std::function<Tensor(const Tensor& prediction, const Tensor& targets)>;

struct TrainConfig {
  std::int64_t epochs = 10;
  std::uint64_t seed = 0;             ///< of dropout and the like; weights and order have their own
  std::optional<double> clip_norm{};  ///< largest global norm of the gradients
};

/// Where a run stands.
struct TrainProgress {
  std::int64_t epoch = 0, epochs = 0;  ///< epoch from 1
  std::int64_t step = 0, steps = 0;    ///< of this epoch, from 1
  double loss = 0, accuracy = 0;       ///< of this epoch so far, over its samples
  double samples_per_second = 0;       ///< of this run so far
  double seconds_left = 0;             ///< of the whole run, if it goes on as fast
  [[nodiscard]] bool epoch_done() const noexcept { return step == steps; }
};
/// Called after every step; false stops the run after it.
using ProgressCallback = std::function<bool(const TrainProgress&)>;

/// What one epoch came to, one line of metrics.jsonl.
struct EpochMetrics {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t samples = 0;
  double loss = 0, accuracy = 0;  ///< during training, over the epoch's samples
  double learning_rate = 0;
  double seconds = 0, samples_per_second = 0;
};
/// Called after every epoch.
using EpochCallback = std::function<void(const EpochMetrics&)>;
struct TrainResult {
  std::vector<EpochMetrics> epochs;
  double seconds = 0;
  bool stopped = false;  ///< by the callback
};
struct Evaluation {
  double loss = 0;      ///< mean over samples
  double accuracy = 0;  ///< fraction of rows whose largest logit is the label's; 0 for targets that are no labels
  std::int64_t samples = 0;
};

/// Trains one model with one optimizer. It refers to both, and to nothing else between calls.
///
///     const auto loss = [](const Tensor& prediction, const Tensor& labels) { return cross_entropy(prediction, labels);
///     }; Trainer trainer(model, optimizer, loss, {.epochs = 20}); trainer.fit(loader);
class EVERYO_API Trainer {
 public:
  /// Throws ValueError for epochs below 1 ("epochs") or a clip_norm that is not above 0 ("gradient_clip").
  Trainer(ModuleBase& model, Optimizer& optimizer, LossFunction loss, const TrainConfig& config = {});

  /// Trains from where the loader stands to the end of epoch `epochs`, counted by the loader. Each step is one event of
  /// kind `other` with its parts inside: data, forward, backward, optimizer. The model is in training mode during it
  /// and each module in its own mode afterwards. Throws StateError when a loss is not finite; the message names the
  /// step, the loss, and the first parameter whose value or gradient is not finite. The optimizer has not made that
  /// step.
  TrainResult fit(Loader& loader, const ProgressCallback& progress = {}, const EpochCallback& epoch_end = {});

  /// Loss and accuracy over all rows of `data`, in evaluation mode and without a graph; each module's own mode comes
  /// back. Throws ValueError without samples ("no batches") or for a batch below 1.
  [[nodiscard]] Evaluation evaluate(const ArrayDataset& data, std::int64_t batch = 256) const;

  /// All that a resumed run needs to go on with the same bits: model, optimizer, steps, the epoch's sums so far, and
  /// where the loader stands. Between steps; a progress callback may call it.
  [[nodiscard]] StateTree state(const Loader& loader) const;
  /// Takes up such a state: `fit` goes on from there. Throws StateError for a state of another model, optimizer or
  /// order of samples.
  void load(const StateTree& state, Loader& loader);

  /// Steps made so far.
  [[nodiscard]] std::int64_t steps() const noexcept { return step_; }
  [[nodiscard]] const TrainConfig& config() const noexcept { return config_; }

 private:
  struct StepResult {
    double loss;
    std::int64_t correct;
  };
  /// Sums over the epoch's samples so far.
  struct Totals {
    double loss = 0;
    std::int64_t correct = 0, samples = 0;
    void add(double mean_loss, std::int64_t right, std::int64_t rows) {
      loss += mean_loss * static_cast<double>(rows);
      correct += right;
      samples += rows;
    }
    [[nodiscard]] double mean_loss() const { return loss / static_cast<double>(samples); }
    [[nodiscard]] double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
  };
  StepResult step(const Batch& batch);
  [[noreturn]] void report_bad_loss(const Tensor& loss, const Batch& batch);

  ModuleBase& model_;
  Optimizer& optimizer_;
  LossFunction loss_;
  TrainConfig config_;
  std::int64_t step_ = 0;
  Totals epoch_;
};

/// The class of each row of `data` by a model that gives logits [N, K]: int64 [N], the first largest of its row. In
/// evaluation mode and without a graph; each module's own mode comes back. Throws as Trainer::evaluate.
EVERYO_API Tensor predict_classes(ModuleBase& model, const ArrayDataset& data, std::int64_t batch = 256);
/// Loss and accuracy of a model, as Trainer::evaluate.
EVERYO_API Evaluation evaluate(ModuleBase& model, const LossFunction& loss, const ArrayDataset& data,
                               std::int64_t batch = 256);

/// Rows of logits [N, K] whose first largest element is at the label, int64 [N]; nothing for other shapes or dtypes.
EVERYO_API std::optional<std::int64_t> count_correct(const Tensor& logits, const Tensor& labels);

// ---- models and optimizers by name, for the command ----

struct ModelOptions {
  std::int64_t inputs = 64, classes = 10;
  std::uint64_t seed = 0;  ///< layer i draws its weights from seed + i
};
/// Names that make_model takes.
EVERYO_API std::vector<std::string> model_names();
/// Of rows [N, inputs]. "mlp": Linear to 128, ReLU, Linear to 64, ReLU, Linear to classes. "cnn", rows being square
/// images of 4 by 4 pixels or more: convolutions of 3 by 3 to 32 and 32 channels, a pool, one to 64, a pool, Linear to
/// classes, with ReLU after each. Throws ValueError for another name, and for inputs that are no square.
EVERYO_API std::unique_ptr<ModuleBase> make_model(std::string_view name, const ModelOptions& options = {});

EVERYO_API std::vector<std::string> optimizer_names();
/// "sgd" (momentum 0.9), "adam", "adamw"; without a learning rate 0.05 for sgd, 0.001 for the others. Throws ValueError
/// for another name.
EVERYO_API std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Tensor> parameters,
                                                     std::optional<double> learning_rate = {});

}  // namespace everyo::inline v1
