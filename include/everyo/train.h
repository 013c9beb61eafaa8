#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/accumulation.h"
#include "everyo/data.h"
#include "everyo/early_stopping.h"
#include "everyo/nn.h"
#include "everyo/optim.h"
#include "everyo/precision.h"
#include "everyo/step_digest.h"

// The loop around a model. Letters: N rows of a batch, K classes.
namespace everyo::train {
class Ranks;
}  // namespace everyo::train
namespace everyo::inline v1 {

class ProcessGroup;

/// Mean loss of a batch: prediction [N, ..], targets [N, ..] -> one element.
using LossFunction = std::function<Tensor(const Tensor& prediction, const Tensor& targets)>;

struct TrainConfig {
  std::int64_t epochs = 10;
  std::uint64_t seed = 0;             ///< of dropout and the like; weights and order have their own
  std::optional<double> clip_norm{};  ///< largest global norm of the gradients
  std::int64_t accumulate = 1;  ///< micro-batches that a rank's part of a batch is cut into; the loss must be a mean,
                                ///< as they are weighted as parts of one: a sum would give a wrong gradient
  TargetCount count{};          ///< what the loss divides by: rows, unless it says otherwise
  Schedule schedule{};          ///< of the optimizer's learning rates, by its steps; none: they stay
  std::optional<EarlyStoppingOptions> early_stopping{};
  DType precision = float32;   ///< of products in forward and loss: float32 leaves dtypes as they are, float16 and
                               ///< bfloat16 are under Autocast; evaluation, too
  GradScalerOptions scaler{};  ///< with float16
  /// The ranks that train together, each with the same trainer and a loader of its (rank, world_size); it must outlive
  /// the trainer. Null: there are no others.
  ProcessGroup* group = nullptr;
  /// Of VirtualShards that each batch is cut into: the same bits for any number of threads and ranks. 0: none.
  std::int64_t virtual_shards = 0;
  DigestSink digests{};  ///< takes the digest of each step, which costs a pass over all state; empty: none is made
};

/// What loss scaling came to, of an epoch so far.
struct LossScaling {
  double scale = 1;          ///< now
  std::int64_t skipped = 0;  ///< batches whose step was left out
  std::string overflowed{};  ///< the first parameter whose gradient was not finite in the last of them, "" before it
};

/// Where a run stands.
struct TrainProgress {
  std::int64_t epoch = 0, epochs = 0;    ///< epoch from 1
  std::int64_t step = 0, steps = 0;      ///< batches of this epoch, from 1
  double loss = 0, accuracy = 0;         ///< of this epoch so far, over its targets that count; NaN before the first
  double samples_per_second = 0;         ///< of this run so far
  double seconds_left = 0;               ///< of the whole run, if it goes on as fast
  std::optional<LossScaling> scaling{};  ///< with float16
  [[nodiscard]] bool epoch_done() const noexcept { return step == steps; }
};
/// Called after every step; false stops the run after it, unless the run is at its end anyway.
using ProgressCallback = std::function<bool(const TrainProgress&)>;

/// Both figures are NaN where no target counts: there is nothing that they could be of, and NaN is no improvement.
struct Evaluation {
  double loss = 0;      ///< mean over the targets that count
  double accuracy = 0;  ///< fraction of them whose row's largest logit is the label's; 0 for targets that are no labels
  std::int64_t samples = 0;
};
/// What one epoch came to, one line of metrics.jsonl.
struct EpochMetrics {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t samples = 0;
  double loss = 0, accuracy = 0;  ///< during training, over the epoch's targets that count; NaN where none does
  double learning_rate = 0;       ///< of its last step
  double seconds = 0, samples_per_second = 0;
  std::optional<Evaluation> validation{};
  bool best = false;                     ///< the best so far, as early stopping is told to see it
  std::optional<LossScaling> scaling{};  ///< with float16
};
/// Called after every epoch, when the trainer's state is that of the epoch's end.
using EpochCallback = std::function<void(const EpochMetrics&)>;
/// A value of an epoch by name: "loss", "accuracy", "val_loss", "val_accuracy". Throws ValueError for another name, and
/// for a value of the validation that there was none of.
EVERYO_API double metric(const EpochMetrics& row, std::string_view name);

struct TrainResult {
  std::vector<EpochMetrics> epochs;
  double seconds = 0;
  bool stopped = false;  ///< by the callback, with something left to do
  bool early = false;    ///< by early stopping
};
struct FitOptions {
  ProgressCallback progress{};
  EpochCallback epoch_end{};
  const Dataset* validation = nullptr;  ///< evaluated after each epoch; it must outlive the call
};

/// Trains one model with one optimizer. It refers to both, and to nothing else between calls.
///
///     Trainer trainer(model, optimizer, CrossEntropyLoss(), {.epochs = 20});
///     trainer.fit(loader, {.validation = &held_out});
///
/// On several ranks each has a trainer of the same config and calls the same functions. A step is the mean over the
/// global batch, weighted by the targets that count; a rank without any takes part all the same. Figures, their epochs
/// and progress are those of all ranks and the same on each; one rank, say 0, should write files. Batch norm sees a
/// rank's micro-batch, and its running statistics are the ranks' mean (BufferSync::mean).
///
/// With virtual shards the bits do not depend on the number of threads and ranks, and a run may be resumed on another
/// one. A shard is then what a micro-batch is otherwise: batch norm sees it, and it has dropout masks of its own. So
/// `accumulate` only says how many of a rank's shards are worked on at once, a part of them, to save memory.
class EVERYO_API Trainer {
 public:
  /// Throws ValueError for epochs or accumulate below 1, a clip_norm that is not above 0 ("gradient_clip"), another
  /// precision, virtual_shards below 0 or fewer than ranks, and what EarlyStopping and GradScaler refuse. With a
  /// schedule, the optimizer's learning rates are those of its first step from here on.
  Trainer(ModuleBase& model, Optimizer& optimizer, LossFunction loss, const TrainConfig& config = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) = delete;

  /// Trains from where the loader stands to the end of epoch `epochs`, counted by the loader. A batch is one optimizer
  /// step, made of `accumulate` micro-batches (MicroBatches, accumulation.h); one of whose targets none counts makes no
  /// step, and the first of them is logged. Each step is one event of kind `other` with its parts inside: data,
  /// forward, backward, optimizer. The model is in training mode during it and each module in its own mode afterwards.
  ///
  /// In float16 the loss is scaled, and a step whose gradients overflowed is left out: it is logged with the first such
  /// parameter, and neither steps() nor the schedule count it. Gradients are unscaled before they are clipped.
  ///
  /// With early stopping, a run that ends (by it, or after its last epoch) leaves the model with the weights of the
  /// best epoch; one that a callback stops goes on later, and keeps those it has. Save what is to be resumed in
  /// `epoch_end`.
  ///
  /// On several ranks all call it; weights and buffers become rank 0's first. A callback that stops the run on one
  /// stops it on all, after the same step. The loader gives a rank its part, or, with virtual shards, the rows of its
  /// shards (LoaderOptions::shards) or whole batches. What it throws on one rank ends the group.
  ///
  /// Throws ValueError when early stopping watches a validation that is not given, and for a loader of other ranks or
  /// shards; StateError for an optimizer with parameters that the model has not, on several ranks, and when a loss is
  /// not finite: the message names the step, the loss, and the first parameter whose value or gradient is not finite.
  /// The optimizer has not made that step. In float16 also after `scaler.most_skips` steps in a row that were left out,
  /// with the parameter's name.
  TrainResult fit(Loader& loader, const FitOptions& options = {});

  /// Loss and accuracy over all rows of `data`, in evaluation mode and without a graph; each module's own mode comes
  /// back. On several ranks all call it: each evaluates some of the batches, and the figures are added up in the order
  /// of the batches, so that they are the bits of one rank's. Throws ValueError without samples ("no batches") or for a
  /// batch below 1.
  [[nodiscard]] Evaluation evaluate(const Dataset& data, std::int64_t batch = 256) const;

  /// All that a resumed run needs to go on with the same bits: model, optimizer, schedule, early stopping with its best
  /// weights, the scaler, steps, the epoch's sums so far, and where the loader stands. Between steps; a callback may
  /// call it. The same on every rank, so that one of them may save it for all.
  [[nodiscard]] StateTree state(const Loader& loader) const;
  /// Takes up such a state: `fit` goes on from there. `accumulate` may differ, and so may epochs and patience. Throws
  /// StateError for a state of another model, optimizer, precision, number of virtual shards or order of samples, or
  /// with other parts (a schedule, early stopping) than this trainer's. On several ranks each loads it; the number of
  /// them may be another than that of the run that saved it, which is logged where it may show in the bits: without
  /// virtual shards.
  void load(const StateTree& state, Loader& loader);

  /// Steps made so far.
  [[nodiscard]] std::int64_t steps() const noexcept { return step_; }
  [[nodiscard]] const TrainConfig& config() const noexcept { return config_; }
  /// What scales the loss; null unless in float16.
  [[nodiscard]] const GradScaler* scaler() const noexcept { return scaler_ ? &*scaler_ : nullptr; }
  /// Where early stopping stands; null without it.
  [[nodiscard]] const EarlyStopping* early_stopping() const noexcept { return early_ ? &*early_ : nullptr; }

 private:
  /// Sums over some samples, of an epoch or a step.
  struct Totals {
    double loss = 0;           // times the targets that count
    std::int64_t counted = 0;  // targets that the loss is a mean over
    std::int64_t correct = 0, labels = 0, samples = 0;
    double learning_rate = 0;  // of the last step
    std::int64_t skipped = 0;  // steps left out
    std::string overflowed{};  // in the last of them
    [[nodiscard]] double mean_loss() const { return mean(loss, counted); }
    [[nodiscard]] double accuracy() const { return mean(static_cast<double>(correct), labels); }
    [[nodiscard]] static double mean(double sum, std::int64_t n) {
      return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(n);
    }
  };
  struct Forward {
    Tensor prediction, loss;
  };
  struct Shards;
  void check_loader(const Loader& loader) const;
  void check_optimizer() const;
  void run_epochs(Loader& loader, const FitOptions& options, TrainResult& result);
  void step(const Batch& batch, std::int64_t rows);
  [[nodiscard]] Totals run_parts(const Batch& batch);
  [[nodiscard]] Totals run_shards(const Batch& batch, std::int64_t rows);
  [[nodiscard]] Shards cut(const Batch& batch, std::int64_t rows) const;
  void zero_grad() const;
  [[nodiscard]] Forward forward(const MicroBatch& part) const;
  void backward(const Forward& made, double weight) const;
  void forward_backward(const MicroBatch& part, Totals& sums);
  void update();
  bool try_step();
  void log_skip() const;
  [[nodiscard]] std::optional<LossScaling> scaling(const Totals& totals) const;
  [[noreturn]] void report_bad_loss(const Tensor& loss, const MicroBatch& part);
  [[noreturn]] void report_bad_gradient(double norm);
  EpochMetrics end_epoch(std::int64_t epoch, double seconds, const FitOptions& options);

  ModuleBase& model_;
  Optimizer& optimizer_;
  LossFunction loss_;
  TrainConfig config_;
  std::optional<Scheduler> scheduler_;
  std::optional<EarlyStopping> early_;
  std::optional<GradScaler> scaler_;
  std::unique_ptr<train::Ranks> ranks_;
  std::vector<Tensor> others_;  // parameters of the model that the optimizer has not
  std::int64_t step_ = 0;
  Totals epoch_;
  bool said_empty_ = false;  // that a batch without a target that counts makes no step
};

/// The class of each row of `data` by a model that gives logits [N, K]: int64 [N], the first largest of its row. In
/// evaluation mode and without a graph; each module's own mode comes back. Throws as Trainer::evaluate.
EVERYO_API Tensor predict_classes(ModuleBase& model, const Dataset& data, std::int64_t batch = 256);
/// Loss and accuracy of a model, as Trainer::evaluate, with `count` as in TrainConfig.
EVERYO_API Evaluation evaluate(ModuleBase& model, const LossFunction& loss, const Dataset& data,
                               std::int64_t batch = 256, const TargetCount& count = {});

/// Rows of logits [N, K] whose first largest element is at the label, int64 [N], rows labelled `ignore_index` left out;
/// nothing for other shapes or dtypes.
EVERYO_API std::optional<std::int64_t> count_correct(const Tensor& logits, const Tensor& labels,
                                                     std::optional<std::int64_t> ignore_index = {});

// ---- what the command needs: rows of any file, models, optimizers and schedules by name ----

/// Rows for a model of rows: features [N, ..] of any dtype as [N, D] float32, bytes (uint8, as pixels are) divided by
/// 255; whole labels [N] or [N, 1] as int64 [N]. Throws ShapeError unless both have N rows, DTypeError for labels that
/// are no whole numbers.
EVERYO_API ArrayDataset labelled_rows(const Tensor& features, const Tensor& labels);

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

/// Names of the dtypes that TrainConfig::precision takes.
EVERYO_API std::vector<std::string> precision_names();

struct ScheduleOptions {
  std::int64_t steps = 0;    ///< of the whole run, 1 or more
  std::int64_t warm_up = 0;  ///< of them, while the rate rises to its full height; less than steps
};
EVERYO_API std::vector<std::string> schedule_names();
/// After the warm-up: "constant"; "step", a tenth after each third of the run; "cosine", half a cosine down to 0.
/// Throws ValueError for another name or options out of range.
EVERYO_API Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

}  // namespace everyo::inline v1
