#include "kernels/isa.h"

#include <hwy/targets.h>

#include <oneapi/dnnl/dnnl.h>
#include <mutex>

#include "base/isa.h"
#include "everyo/error.h"

namespace everyo::kernels {
namespace {

/// Highway's targets above `isa`. On x86 a lower bit is a better target.
[[maybe_unused]] constexpr std::int64_t targets_above(Isa isa) noexcept {
  switch (isa) {
    case Isa::baseline: return (HWY_AVX2 << 1) - 1;
    case Isa::avx2: return HWY_AVX2 - 1;
    case Isa::avx512: break;
  }
  return 0;
}

}  // namespace

void apply_isa() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (isa_is_applied.load(std::memory_order_relaxed)) return;
  const Isa used = base::freeze_isa();
#if HWY_ARCH_X86
  if (used != detected_isa()) {
    hwy::DisableTargets(targets_above(used));
    const dnnl_status_t status = dnnl_set_max_cpu_isa(used == Isa::baseline ? dnnl_cpu_isa_sse41 : dnnl_cpu_isa_avx2);
    if (status != dnnl_success) {
      throw StateError(
          "[isa] oneDNN has run already, so its instruction set can no longer be capped; cap it before the "
          "first operation");
    }
  }
#endif
  isa_is_applied.store(true, std::memory_order_release);
}

void try_apply_isa() noexcept {
  try {
    apply_isa();
  } catch (const Error&) {
  }
}

}  // namespace everyo::kernels
