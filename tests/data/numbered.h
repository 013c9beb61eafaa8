#pragma once
#include <cstdint>
#include <vector>

#include "everyo/data.h"

namespace everyo {

/// N samples: sample i has features [i, -i] and label i.
inline ArrayDataset numbered(std::int64_t n) {
  std::vector<float> features;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n; ++i) {
    features.push_back(static_cast<float>(i));
    features.push_back(static_cast<float>(-i));
    labels.push_back(i);
  }
  return {Tensor::from<float>(features, {n, 2}), Tensor::from<std::int64_t>(labels, {n})};
}

inline std::vector<std::int64_t> labels_of(const Batch& batch) {
  const auto y = batch.targets.data<std::int64_t>();
  return {y.begin(), y.end()};
}

/// The labels that the rest of the epoch gives, batch after batch.
inline std::vector<std::vector<std::int64_t>> rest_of_epoch(Loader& loader) {
  std::vector<std::vector<std::int64_t>> out;
  for (const Batch& batch : loader) out.push_back(labels_of(batch));
  return out;
}

}  // namespace everyo
