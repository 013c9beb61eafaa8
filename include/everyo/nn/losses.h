#pragma once
#include "everyo/nn/module.h"
#include "everyo/ops.h"

// Losses as modules, for what takes one by type. Shapes and errors are the functions' of ops.h.
namespace everyo::inline v1 {

struct EVERYO_API MSELoss : Module<MSELoss> {
  explicit MSELoss(Reduction how = Reduction::mean) : reduction(how) {}
  [[nodiscard]] Tensor forward(const Tensor& prediction, const Tensor& target) const {
    return mse_loss(prediction, target, reduction);
  }
  Reduction reduction;
};
struct EVERYO_API MAELoss : Module<MAELoss> {
  explicit MAELoss(Reduction how = Reduction::mean) : reduction(how) {}
  [[nodiscard]] Tensor forward(const Tensor& prediction, const Tensor& target) const {
    return mae_loss(prediction, target, reduction);
  }
  Reduction reduction;
};
/// Of probabilities.
struct EVERYO_API BCELoss : Module<BCELoss> {
  explicit BCELoss(Reduction how = Reduction::mean) : reduction(how) {}
  [[nodiscard]] Tensor forward(const Tensor& probability, const Tensor& target) const {
    return bce_loss(probability, target, reduction);
  }
  Reduction reduction;
};
struct EVERYO_API BCEWithLogitsLoss : Module<BCEWithLogitsLoss> {
  explicit BCEWithLogitsLoss(Reduction how = Reduction::mean) : reduction(how) {}
  [[nodiscard]] Tensor forward(const Tensor& logits, const Tensor& target) const {
    return bce_with_logits_loss(logits, target, reduction);
  }
  Reduction reduction;
};
struct EVERYO_API CrossEntropyLoss : Module<CrossEntropyLoss> {
  explicit CrossEntropyLoss(const CrossEntropyOptions& how = {}) : options(how) {}
  [[nodiscard]] Tensor forward(const Tensor& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets, options);
  }
  CrossEntropyOptions options;
};

}  // namespace everyo::inline v1
