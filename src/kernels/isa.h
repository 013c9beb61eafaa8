#pragma once
#include <atomic>

#include "everyo/isa.h"

namespace everyo::kernels {

/// Set once the vendor libraries know the instruction set.
inline constinit std::atomic<bool> isa_is_applied{false};

/// Fixes everyo::isa() and tells Highway and oneDNN. Throws ValueError when EVERYO_ISA is no instruction set's name.
void apply_isa();
/// As apply_isa(), for code that cannot throw: a bad EVERYO_ISA is left to the next require_isa().
void try_apply_isa() noexcept;

inline bool isa_applied() noexcept { return isa_is_applied.load(std::memory_order_acquire); }

/// Set by apply_isa().
inline constinit std::atomic<Isa> applied_isa{Isa::baseline};

/// Called before an op's forward, once per op; after the first time, one load.
inline void require_isa() {
  if (!isa_applied()) [[unlikely]]
    apply_isa();
}
/// Called by a kernel before a HWY_DYNAMIC_DISPATCH or the making of a oneDNN primitive.
inline void use_isa() noexcept {
  if (!isa_applied()) [[unlikely]]
    try_apply_isa();
}
/// everyo::isa() as it was fixed, for a kernel that chooses by itself: without a look at the environment.
inline Isa used_isa() noexcept {
  use_isa();
  return applied_isa.load(std::memory_order_relaxed);
}

}  // namespace everyo::kernels
