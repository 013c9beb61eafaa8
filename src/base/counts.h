#pragma once
#include <cstdint>

namespace everyo::base {

/// Of steps, samples or epochs that a file tells of: more than anyone makes, exact as a double, and far from overflow.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 53;
constexpr bool is_count(std::int64_t value) noexcept { return value >= 0 && value <= most_counted; }

}  // namespace everyo::base
