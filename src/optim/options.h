#pragma once
#include <fmt/format.h>

#include <limits>

#include "everyo/dtype.h"
#include "everyo/error.h"

namespace everyo::inline v1 {

inline constexpr const char* state_dtypes = "float32, bfloat16 or float64";
inline bool is_state_dtype(DType dtype) { return dtype == float32 || dtype == bfloat16 || dtype == float64; }

/// What the options of every optimizer have in common. Throws ValueError.
inline void check_common(const char* name, double lr, double weight_decay, DType state_dtype) {
  constexpr double largest = std::numeric_limits<float>::max();  // weights are mostly float32
  if (!(lr > 0) || lr > largest)
    throw ValueError(fmt::format("[{}] lr {} must be positive and finite in float32", name, lr));
  if (!(weight_decay >= 0) || weight_decay > largest)
    throw ValueError(
        fmt::format("[{}] weight_decay {} must be 0 or positive, and finite in float32", name, weight_decay));
  if (!is_state_dtype(state_dtype))
    throw ValueError(fmt::format("[{}] state_dtype {} must be {}", name, name_of(state_dtype), state_dtypes));
}

}  // namespace everyo::inline v1
