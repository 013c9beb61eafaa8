#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "everyo/half.h"

namespace everyo::kernels {

inline constexpr std::int64_t several_blocks = 100003;

/// Between low and high, the same on every run.
template <class T>
std::vector<T> draw(std::int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& v : values) v = narrow<T>(uniform(engine));
  return values;
}

}  // namespace everyo::kernels
