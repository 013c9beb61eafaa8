#pragma once
#include <cstdint>
#include <optional>

#include "everyo/nn/module.h"
#include "everyo/ops.h"

// Letters: N batch, D and K widths; "[..]" any leading dimensions.
namespace everyo::inline v1 {

/// y = x W + b: x [.., D] -> [.., K], weight [D, K], bias [K] zeros at first.
class EVERYO_API Linear : public Module<Linear> {
 public:
  struct Options {
    std::optional<std::uint64_t> seed{};
    bool bias = true;
    Initializer initializer = "he_uniform";
    DType dtype = float32;
  };
  Linear(std::int64_t in_features, std::int64_t out_features) : Linear(in_features, out_features, Options{}) {}
  /// Throws ShapeError unless both widths are positive, DTypeError unless the dtype is floating.
  Linear(std::int64_t in_features, std::int64_t out_features, const Options& options);

  void visit(Visitor& v) { v("weight", weight)("bias", bias); }
  /// With an activation: the same bits as that activation of the plain result, in one op. Throws ShapeError "must be".
  [[nodiscard]] Tensor forward(const Tensor& x, Activation activation = Activation::none) const;

  Parameter weight;
  std::optional<Parameter> bias;
};

struct EVERYO_API ReLU : Module<ReLU> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return relu(x); }
};
struct EVERYO_API Sigmoid : Module<Sigmoid> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return sigmoid(x); }
};
struct EVERYO_API Tanh : Module<Tanh> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return tanh(x); }
};
struct EVERYO_API GELU : Module<GELU> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return gelu(x); }
};
struct EVERYO_API SiLU : Module<SiLU> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return silu(x); }
};

struct EVERYO_API Softmax : Module<Softmax> {
  explicit Softmax(std::int64_t over = -1) : axis(over) {}
  [[nodiscard]] Tensor forward(const Tensor& x) const { return softmax(x, axis); }
  std::int64_t axis;
};
struct EVERYO_API LogSoftmax : Module<LogSoftmax> {
  explicit LogSoftmax(std::int64_t over = -1) : axis(over) {}
  [[nodiscard]] Tensor forward(const Tensor& x) const { return log_softmax(x, axis); }
  std::int64_t axis;
};

/// In training zeroes elements with probability p and scales the others by 1 / (1 - p); in eval the identity. Masks
/// depend on the Context's seed (or `seed`), step, rank and micro-batch, and on the module's path: the same on every
/// run. So one layer called twice in a step drops the same elements twice: give Context::micro_batch another number for
/// each forward of a step, and separate models that share a step a `seed` each.
class EVERYO_API Dropout : public Module<Dropout> {
 public:
  struct Options {
    std::optional<std::uint64_t> seed{};  ///< in place of Context::seed
  };
  Dropout() : Dropout(0.5) {}
  explicit Dropout(double p) : Dropout(p, Options{}) {}
  /// Throws ValueError unless p is in [0, 1).
  Dropout(double p, const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) const;
  [[nodiscard]] double p() const noexcept { return p_; }

 private:
  double p_;
  std::optional<std::uint64_t> seed_;
};

/// All axes from `start_axis` on as one: [N, 8, 8] -> [N, 64].
struct EVERYO_API Flatten : Module<Flatten> {
  explicit Flatten(std::int64_t start = 1) : start_axis(start) {}
  [[nodiscard]] Tensor forward(const Tensor& x) const { return flatten(x, start_axis); }
  std::int64_t start_axis;
};

/// The last axis as several: Unflatten({8, 8, 1}) makes [N, 64] an image [N, 8, 8, 1].
class EVERYO_API Unflatten : public Module<Unflatten> {
 public:
  explicit Unflatten(const Shape& sizes) : sizes_(sizes) {}
  /// Throws ShapeError "must be" unless the last axis has as many elements as the sizes, and x at least one axis.
  [[nodiscard]] Tensor forward(const Tensor& x) const;

 private:
  Shape sizes_;
};

}  // namespace everyo::inline v1
