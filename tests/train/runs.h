#pragma once
#include <cmath>
#include <vector>

#include "everyo/ops.h"
#include "everyo/train.h"

// Small runs that the tests of this room share.
namespace everyo::testing_train {

inline const LossFunction& loss_of_labels() {
  static const LossFunction loss = [](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels);
  };
  return loss;
}

/// Two classes that a line separates: features [n, 2], labels [n].
inline ArrayDataset two_classes(std::int64_t n) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < n; ++i) {
    const double angle = 0.7 * static_cast<double>(i);
    const std::int64_t label = i % 2;
    x.push_back(static_cast<float>(std::cos(angle) + (label == 0 ? 2 : -2)));
    x.push_back(static_cast<float>(std::sin(angle)));
    y.push_back(label);
  }
  return {Tensor::from<float>(x, {n, 2}), Tensor::from<std::int64_t>(y, {n})};
}

inline Sequential small_net(std::uint64_t seed = 0) {
  return Sequential{Linear(2, 8, {.seed = seed}), ReLU(), Linear(8, 2, {.seed = seed + 1})};
}

inline std::vector<double> values_of(ModuleBase& net) {
  std::vector<double> values;
  for (const Tensor& p : net.parameters())
    for (const double v : p.to_vector()) values.push_back(v);
  return values;
}

}  // namespace everyo::testing_train
