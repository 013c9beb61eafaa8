#pragma once
#include <optional>

#include "everyo/precision.h"

namespace everyo::train {

/// Autocast in a half; nothing for another dtype, so that a scope around it stays in force.
class [[nodiscard]] PrecisionScope {
 public:
  explicit PrecisionScope(DType precision) {
    if (is_half(precision)) autocast_.emplace(precision);
  }
  [[nodiscard]] bool is_on() const noexcept { return autocast_.has_value(); }

 private:
  std::optional<Autocast> autocast_;
};

}  // namespace everyo::train
