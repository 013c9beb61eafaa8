#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "everyo/communicator.h"
#include "everyo/context.h"
#include "everyo/op.h"
#include "everyo/optim.h"

// Reduced precision: matrix products in halves for a scope, and the scaling of losses that float16 needs.
namespace everyo::inline v1 {

/// While it lives, matmul, linear and conv2d of this thread take their operands in a half and give halves, summed in
/// float32 and rounded once; sums, exponentials and losses give float32; everything else keeps its operands' dtypes.
/// Weights keep their dtype, and their gradients have it: each cast is differentiable. `Autocast(false)` is an island
/// of ordinary dtypes inside. Scopes nest, and end with their block. Backward and optimizers run outside it.
///
///     Tensor loss;
///     { eo::Autocast low(eo::bfloat16); loss = eo::cross_entropy(model(x), labels); }
///     loss.backward();
class [[nodiscard]] EVERYO_API Autocast {
 public:
  /// Throws DTypeError unless dtype is float16 or bfloat16.
  explicit Autocast(DType dtype);
  /// On in the dtype that is set, or off.
  explicit Autocast(bool on) noexcept;
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool was_on_;
  DType was_dtype_;
};

/// Names of the ops that compute in halves under autocast, whatever their operands' dtypes: those of policy `low`.
EVERYO_API std::vector<std::string_view> autocast_ops();

/// "low", "follow", "keep32", "promote": what a record says of its op under autocast.
EVERYO_API std::string_view name_of(CastPolicy policy) noexcept;

/// Calls of one op in one module that had the same dtypes.
struct PrecisionRow {
  std::string module;  ///< its dotted path; "" outside any
  std::string op;
  CastPolicy policy = CastPolicy::unset;
  std::vector<DType> operands, results;
  std::int64_t calls = 0;
  bool operator==(const PrecisionRow&) const = default;
};
/// What ran in which dtype while `run` did, in the order of first calls; what backward computes has the dtypes of its
/// op's results. For a model: `precision_report([&] { model(x); })`, within a MetaScope without computing anything.
EVERYO_API std::vector<PrecisionRow> precision_report(const std::function<void()>& run);
/// A table, one line a row.
EVERYO_API std::string to_string(std::span<const PrecisionRow> rows);

struct GradScalerOptions {
  double init_scale = 65536;            ///< in [1, 2^126]
  double growth_factor = 2;             ///< > 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< clean steps in a row before the scale grows, >= 1
  std::int64_t most_skips = 200;        ///< skipped steps in a row after which update() gives up; 0: never
  bool enabled = true;                  ///< false: scales by 1 and never skips
  Agreement* ranks = nullptr;           ///< agrees on overflow with the other ranks; null: there is one
};

/// Keeps small gradients of float16 from becoming zero: the loss is multiplied before backward, the gradients are
/// divided before the step, and a step whose gradients overflowed is left out (Micikevicius et al., 2018). The scale
/// falls by backoff_factor, to 1 at the least, after a step that was left out, and grows after growth_interval clean
/// ones.
///
///     scaler.backward(loss);           // as often as micro-batches ask for
///     scaler.unscale(optimizer);       // only to look at the gradients, or to clip them
///     if (!scaler.step(optimizer)) …   // left out: schedules should not move on
///     scaler.update();                 // once, after the steps of all optimizers
///
/// Each optimizer goes from ready to unscaled to stepped, and back with update(). Gradients know that they are scaled:
/// an optimizer's own step() and clipping refuse them.
class EVERYO_API GradScaler : public Stateful {
 public:
  /// Throws ValueError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// 1 when disabled.
  [[nodiscard]] double scale() const noexcept { return options_.enabled ? scale_ : 1; }
  /// loss times the scale, in float32 at the least; when disabled, loss itself. Its backward gives scaled gradients.
  /// Throws StateError for a loss that is the result of scale() already.
  [[nodiscard]] Tensor scale(const Tensor& loss) const;
  /// scale(loss).backward().
  void backward(const Tensor& loss) const { scale(loss).backward(); }

  /// Divides the gradients of an optimizer by what they are multiplied by, in float32, rounded once to their dtype;
  /// whether all are finite, on all ranks. Throws StateError when they are unscaled or stepped already.
  bool unscale(const Optimizer& optimizer);
  /// Unscales what is not, then steps unless a gradient is infinite or NaN on any rank; whether it did. Throws
  /// StateError for a second step before update(). One that the optimizer throws from was not made, and may be again.
  bool step(Optimizer& optimizer);
  /// The two for an optimizer of another kind: its parameters, what tells it from others, its name, and its step.
  bool unscale(std::span<const Tensor> parameters, const void* optimizer, std::string_view name);
  bool step(std::span<const Tensor> parameters, const void* optimizer, std::string_view name,
            const std::function<void()>& make_step);
  /// Adapts the scale to what step() or unscale() found, and makes all optimizers ready. Throws StateError after
  /// most_skips skipped steps in a row; it names the first parameter that overflowed.
  void update();
  /// Sets the scale, in [1, 2^126] or ValueError, and makes all optimizers ready; what they found is forgotten.
  void update(double scale);

  [[nodiscard]] std::int64_t applied_steps() const noexcept { return applied_; }
  [[nodiscard]] std::int64_t skipped_steps() const noexcept { return skipped_; }
  [[nodiscard]] std::int64_t skips_in_a_row() const noexcept { return skips_in_a_row_; }
  /// The first parameter whose gradient was not finite when a step was last left out, "" before that and when another
  /// rank found it.
  [[nodiscard]] const std::string& overflowed() const noexcept { return overflowed_; }
  [[nodiscard]] const GradScalerOptions& options() const noexcept { return options_; }

  /// Scale and counts.
  [[nodiscard]] StateTree state() const override;
  /// Throws StateError for a state without them, or with one out of range; nothing is changed then.
  void load(const StateTree& state) override;

 private:
  enum class Stage : std::uint8_t { ready, unscaled, stepped };
  struct Progress {
    Stage stage = Stage::ready;
    bool finite = true;
  };
  bool divide(std::span<const Tensor> parameters);
  void end_update(double scale);

  GradScalerOptions options_;
  double scale_;
  std::int64_t good_ = 0, applied_ = 0, skipped_ = 0, skips_in_a_row_ = 0;
  std::string overflowed_;
  std::unordered_map<const void*, Progress> progress_;  // since the last update
};

}  // namespace everyo::inline v1
