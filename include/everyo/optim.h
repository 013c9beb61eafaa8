#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "everyo/state.h"
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// What every optimizer does. It refers to slots, so it still trains a model that was moved. Parameters without a
/// gradient are left alone.
///
/// A float16 or bfloat16 parameter has a float32 master (`master_weights` of the options): steps are made on it, and
/// the parameter is its rounding, so that steps smaller than the distance of two halves add up. The parameter has the
/// last word: where it holds another number than its master's rounding, since someone has set it or loaded weights into
/// the model, the master begins anew from it, element by element. Without masters, the first step that leaves most of
/// such a parameter's elements where they were, though it would move them, is logged as a warning.
class EVERYO_API Optimizer : public Stateful {
 public:
  ~Optimizer() override;
  /// One update of every parameter that has a gradient. Throws StateError for a parameter that no module owns any
  /// more (it was replaced), a released one, and a gradient that is still scaled. Ends by moving the Context's step on,
  /// so that the next forward draws other dropout masks.
  void step();
  /// Clears the gradients: flags only, no memory is touched.
  void zero_grad() const;
  /// All parameters, group by group.
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::int64_t step_count() const noexcept { return step_count_; }
  [[nodiscard]] std::size_t group_count() const noexcept { return group_ends_.size(); }
  /// Learning rate of a group.
  [[nodiscard]] virtual double lr(std::size_t group = 0) const = 0;
  /// Throws ValueError unless lr is positive and finite.
  void set_lr(double lr, std::size_t group);
  /// Of every group.
  void set_lr(double lr);
  /// "SGD", "Adam", "AdamW".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Step counts, options that change while training, and each parameter's state in its own dtype, masters too.
  [[nodiscard]] StateTree state() const override;
  /// Each parameter's state keeps the dtype it was saved in. Throws StateError when names, number or shapes differ, and
  /// for a half parameter whose master is there and not kept here or the other way round, since a master that is made
  /// from the half is another than the one that was lost; nothing is changed then.
  void load(const StateTree& state) override;

 protected:
  /// State of one parameter: up to three tensors of its shape and its master, undefined until its first step.
  struct Slot {
    std::array<Tensor, 3> values{};
    Tensor master{};
    std::int64_t steps = 0;
    bool said_stalled = false;
  };
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  /// Adds a group. Throws StateError: "no parameters", "… is no slot".
  void add_group(const std::vector<Tensor>& parameters);
  void check_not_empty() const;
  /// The same number. Throws ValueError for one that no group has.
  [[nodiscard]] std::size_t known_group(std::size_t group) const;
  /// The parameter's state tensor, zeros in `dtype` if it has none yet.
  const Tensor& state_tensor(std::size_t parameter, std::size_t which, DType dtype);
  /// The float32 master of a half parameter, zeros if it has none yet; null for another parameter, and in a group
  /// without masters.
  [[nodiscard]] float* master_of(std::size_t parameter, std::size_t group);
  /// Whether it may still be said that a half parameter stalls.
  [[nodiscard]] bool is_watched(std::size_t parameter) const noexcept;
  /// Says so, once, if most of the elements that a step was to move stayed: their largest value and largest change.
  void note_stalls(std::size_t parameter, std::int64_t moved, std::int64_t stalled, float weight, float change);

  [[nodiscard]] std::size_t group_begin(std::size_t group) const noexcept {
    return group == 0 ? 0 : group_ends_[group - 1];
  }
  [[nodiscard]] std::size_t group_end(std::size_t group) const noexcept { return group_ends_[group]; }
  [[nodiscard]] std::size_t group_of(std::size_t parameter) const noexcept;
  /// Updates the parameters of one group that have a gradient.
  virtual void update(std::size_t group) = 0;
  virtual void change_lr(std::size_t group, double lr) = 0;
  /// Whether half parameters of a group have masters.
  [[nodiscard]] virtual bool has_masters(std::size_t group) const;
  /// Names of the state tensors, in the order of Slot::values.
  [[nodiscard]] virtual std::span<const char* const> state_names() const = 0;

  std::vector<Tensor> parameters_;
  std::vector<Slot> slots_;

 private:
  std::vector<std::size_t> group_ends_;
  std::int64_t step_count_ = 0;
};

struct SGDOptions {
  double lr = 0.01;             ///< > 0
  double momentum = 0;          ///< in [0, 1)
  double weight_decay = 0;      ///< >= 0, added to the gradient (L2)
  bool nesterov = false;        ///< needs momentum
  DType state_dtype = float32;  ///< of the velocity, as AdamOptions' of the moments
  bool master_weights = true;   ///< of half parameters, in float32
};
/// Stochastic gradient descent: v = momentum v + g, v = g at first; w -= lr v, with Nesterov w -= lr (g + momentum v).
class EVERYO_API SGD final : public Optimizer {
 public:
  using Options = SGDOptions;
  struct Group {
    std::vector<Tensor> parameters;
    SGDOptions options{};
  };
  /// Throws StateError for an empty list or a tensor that is no slot, ValueError for options out of range.
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {});
  explicit SGD(const std::vector<Group>& groups);
  [[nodiscard]] double lr(std::size_t group = 0) const override { return options(group).lr; }
  [[nodiscard]] std::string name() const override { return "SGD"; }
  [[nodiscard]] const SGDOptions& options(std::size_t group = 0) const { return options_[known_group(group)]; }

 private:
  void update(std::size_t group) override;
  void change_lr(std::size_t group, double lr) override { options_[group].lr = lr; }
  [[nodiscard]] bool has_masters(std::size_t group) const override { return options_[group].master_weights; }
  [[nodiscard]] std::span<const char* const> state_names() const override;
  std::vector<SGDOptions> options_;
};

struct AdamOptions {
  double lr = 1e-3;         ///< > 0
  double beta1 = 0.9;       ///< in [0, 1)
  double beta2 = 0.999;     ///< in [0, 1)
  double eps = 1e-8;        ///< > 0, outside the root
  double weight_decay = 0;  ///< >= 0
  bool amsgrad = false;
  bool decoupled = false;  ///< weight decay on the weight (AdamW) instead of the gradient
  /// Of the moments: float32; bfloat16, computed in float32 and rounded once in the store; or float64, in which the
  /// step is computed then. Rounding to bfloat16 keeps a mean of squares from falling by less than 1/256 of itself a
  /// step, so with beta2 above 0.996 it stays at its height, and a warning says so. float16 cannot hold squares of
  /// gradients below 2.4e-4 and is refused.
  DType state_dtype = float32;
  bool master_weights = true;  ///< of half parameters, in float32
};
/// Adam (Kingma and Ba, 2015), bias-corrected; amsgrad by Reddi et al., 2018.
class EVERYO_API Adam : public Optimizer {
 public:
  using Options = AdamOptions;
  struct Group {
    std::vector<Tensor> parameters;
    AdamOptions options{};
  };
  /// Throws as SGD does.
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {});
  explicit Adam(const std::vector<Group>& groups);
  [[nodiscard]] double lr(std::size_t group = 0) const final { return options(group).lr; }
  [[nodiscard]] std::string name() const override { return "Adam"; }
  [[nodiscard]] const AdamOptions& options(std::size_t group = 0) const { return options_[known_group(group)]; }

 private:
  void update(std::size_t group) final;
  void change_lr(std::size_t group, double lr) final { options_[group].lr = lr; }
  [[nodiscard]] bool has_masters(std::size_t group) const final { return options_[group].master_weights; }
  [[nodiscard]] std::span<const char* const> state_names() const final;
  std::vector<AdamOptions> options_;
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< on the weight itself
  bool amsgrad = false;
  DType state_dtype = float32;  ///< as AdamOptions'
  bool master_weights = true;   ///< of half parameters, in float32
};
/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): w *= 1 - lr weight_decay before the update.
class EVERYO_API AdamW final : public Adam {
 public:
  using Options = AdamWOptions;
  struct Group {
    std::vector<Tensor> parameters;
    AdamWOptions options{};
  };
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});
  explicit AdamW(const std::vector<Group>& groups);
  [[nodiscard]] std::string name() const override { return "AdamW"; }
};

struct ClipOptions {
  bool error_if_nonfinite = false;  ///< throw instead of clipping to NaN
};
/// Scales all gradients so that their joint L2 norm is at most max_norm > 0; returns the norm before. Squares are
/// summed in float64 in the order of the list. Throws StateError for a gradient that is still scaled, and with
/// error_if_nonfinite one that names the first parameter whose gradient is infinite or NaN.
EVERYO_API double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, const ClipOptions& options = {});
/// Clips every gradient element into [-limit, limit], limit > 0.
EVERYO_API void clip_grad_value(std::span<const Tensor> parameters, double limit);
/// Name of the first parameter whose gradient (or, with `values`, value) is infinite or NaN; "" when there is none.
EVERYO_API std::string first_nonfinite(std::span<const Tensor> parameters, bool values = false);

/// A factor on the learning rate at a step, 0 the first.
using Schedule = std::function<double(std::int64_t step)>;
EVERYO_API Schedule constant_schedule();
/// gamma ^ floor(step / step_size).
EVERYO_API Schedule step_schedule(std::int64_t step_size, double gamma);
/// From 1 to `minimum` along half a cosine over `steps`, then `minimum` (Loshchilov and Hutter, 2017, without
/// restarts).
EVERYO_API Schedule cosine_schedule(std::int64_t steps, double minimum = 0);
/// (step + 1) / steps for the first `steps`, then `after`, counted from 0.
EVERYO_API Schedule warm_up(std::int64_t steps, Schedule after = constant_schedule());

/// Applies a schedule to the learning rates an optimizer was made with.
class EVERYO_API Scheduler final : public Stateful {
 public:
  Scheduler(Optimizer& optimizer, Schedule schedule);
  /// After each optimizer step that was applied.
  void step();
  [[nodiscard]] std::int64_t step_count() const noexcept { return step_; }
  [[nodiscard]] StateTree state() const override;
  void load(const StateTree& state) override;

 private:
  void apply();
  Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_;
  std::int64_t step_ = 0;
};

}  // namespace everyo::inline v1
