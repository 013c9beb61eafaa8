#pragma once
#include <utility>
#include <vector>

#include "data/numbered.h"

namespace everyo {

/// Cannot read one sample, and miscounts for another.
class Damaged final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const noexcept override { return 12; }
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t index : indices) {
      if (index == 5) throw FileError("unreadable");
      if (index == 9) return numbered(12).range(0, 0);
    }
    return numbered(12).rows(indices);
  }
};

/// Two samples; gives what it holds, whatever is asked for together with the second.
class Wrong final : public Dataset {
 public:
  explicit Wrong(Batch given) : given_(std::move(given)) {}
  [[nodiscard]] std::int64_t size() const noexcept override { return 2; }
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override {
    return indices.empty() || indices.back() == 1 ? given_ : numbered(2).rows(indices);
  }

 private:
  Batch given_;
};

/// What no data set may give for two rows.
inline std::vector<Batch> wrong_batches() {
  const Tensor features = Tensor::zeros({2, 2}), targets = Tensor::zeros({2}, int64);
  return {{},
          {features, {}},
          {{}, targets},
          {Tensor::meta({float32, {2, 2}}), targets},
          {features, Tensor::meta({int64, {2}})},
          {Tensor::zeros({1, 2}), targets},
          {features, Tensor::zeros({1}, int64)},
          {features, Tensor::zeros({3}, int64)},
          {Tensor::zeros({}), targets}};
}

}  // namespace everyo
