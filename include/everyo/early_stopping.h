#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "everyo/nn.h"
#include "everyo/state.h"

namespace everyo::inline v1 {

/// Whether less or more is better.
enum class MonitorMode : std::uint8_t { min, max };

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";         ///< what a Trainer watches: a name that metric() takes
  std::optional<std::int64_t> patience{5};  ///< epochs without an improvement that are allowed; none: it never stops
  double min_delta = 0;                     ///< a value improves by more than this
  MonitorMode mode = MonitorMode::min;
  bool restore_best_weights = true;
};

/// Watches one value of each epoch, keeps the weights of the best, and says when to stop: when the value has not
/// improved for more than `patience` epochs in a row. NaN is no improvement. It refers to the model.
///
///     EarlyStopping early(model, {.patience = 3});
///     for (std::int64_t epoch = 1; epoch <= epochs && !early.should_stop(); ++epoch) {
///       …
///       early.update(epoch, loss_of_validation);
///     }
///     early.restore();
class EVERYO_API EarlyStopping final : public Stateful {
 public:
  /// Throws ValueError for a patience or min_delta below 0.
  explicit EarlyStopping(ModuleBase& model, EarlyStoppingOptions options = {});

  /// Whether the value of this epoch is the best so far; then the model's weights are kept.
  bool update(std::int64_t epoch, double value);
  [[nodiscard]] bool should_stop() const noexcept { return options_.patience && wait_ > *options_.patience; }
  /// Gives the model the weights of the best epoch, if there is one and they were kept.
  void restore() const;

  [[nodiscard]] double best() const noexcept { return best_; }  ///< infinite, or its negative, at first
  [[nodiscard]] std::int64_t best_epoch() const noexcept { return best_epoch_; }  ///< 0 at first
  [[nodiscard]] std::int64_t wait() const noexcept { return wait_; }              ///< epochs since the best
  [[nodiscard]] const EarlyStoppingOptions& options() const noexcept { return options_; }

  /// With the best weights, which later changes leave as they are.
  [[nodiscard]] StateTree state() const override;
  /// Throws StateError for weights of another model, or of another monitor or mode.
  void load(const StateTree& state) override;

 private:
  ModuleBase& model_;
  EarlyStoppingOptions options_;
  double best_;
  std::int64_t best_epoch_ = 0, wait_ = 0;
  StateTree weights_;  // empty: none
};

}  // namespace everyo::inline v1
