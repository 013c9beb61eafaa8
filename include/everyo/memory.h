#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "everyo/context.h"

/// What fills the memory: every tensor's bytes belong to one category.
namespace everyo::inline v1::memory {

struct Usage {
  std::int64_t now = 0;   ///< bytes
  std::int64_t peak = 0;  ///< bytes; summed over threads, so exact while one thread allocates
};
struct Report {
  std::array<Usage, memory_category_count> by_category{};
  Usage total{};
  std::uint64_t system_allocations = 0;  ///< blocks ever asked of the system; constant in steady training
  std::int64_t cached = 0;               ///< bytes kept for reuse in the shared cache
  [[nodiscard]] const Usage& operator[](MemoryCategory category) const noexcept {
    return by_category[static_cast<std::size_t>(category)];
  }
};
EVERYO_API Report report();
/// One line a category, with bytes now and at the peak.
EVERYO_API std::string to_string(const Report& report);
/// The peak starts again from what is in use now.
EVERYO_API void reset_peak();
/// Gives cached blocks of the shared cache back to the system.
EVERYO_API void trim();

}  // namespace everyo::inline v1::memory
