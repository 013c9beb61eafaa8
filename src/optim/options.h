#pragma once
#include <fmt/format.h>

#include <cmath>

#include "everyo/dtype.h"
#include "everyo/error.h"

namespace everyo::inline v1 {

/// What the options of every optimizer have in common. Throws ValueError.
inline void check_common(const char* name, double lr, double weight_decay, DType state_dtype) {
  if (!(lr > 0) || !std::isfinite(lr))
    throw ValueError(fmt::format("[{}] lr {} must be positive and finite", name, lr));
  if (!(weight_decay >= 0) || !std::isfinite(weight_decay))
    throw ValueError(fmt::format("[{}] weight_decay {} must be 0 or positive", name, weight_decay));
  if (state_dtype != float32 && state_dtype != float64)
    throw ValueError(fmt::format("[{}] state_dtype {} must be float32 or float64", name, name_of(state_dtype)));
}

}  // namespace everyo::inline v1
