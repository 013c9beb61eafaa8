#include "kernels/isa.h"

#include <hwy/targets.h>

#include <oneapi/dnnl/dnnl.h>
#include <mutex>

#include "base/isa.h"
#include "everyo/error.h"

namespace everyo::kernels {
namespace {

/// Highway's targets above `isa`. On x86 a lower bit is a better target. None is compiled above AVX-512: kernels with
/// the instructions of later sets look at isa() themselves.
[[maybe_unused]] constexpr std::int64_t targets_above(Isa isa) noexcept {
  switch (isa) {
    case Isa::baseline: return (HWY_AVX2 << 1) - 1;
    case Isa::avx2: return HWY_AVX2 - 1;
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::avx512_fp16:
    case Isa::amx: break;
  }
  return 0;
}

[[maybe_unused]] constexpr dnnl_cpu_isa_t onednn_isa(Isa isa) noexcept {
  switch (isa) {
    case Isa::baseline: return dnnl_cpu_isa_sse41;
    case Isa::avx2: return dnnl_cpu_isa_avx2;
    case Isa::avx512: return dnnl_cpu_isa_avx512_core;
    case Isa::avx512_bf16: return dnnl_cpu_isa_avx512_core_bf16;
    case Isa::avx512_fp16: return dnnl_cpu_isa_avx512_core_fp16;
    case Isa::amx: break;
  }
  return dnnl_cpu_isa_avx512_core_amx;
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
    const dnnl_status_t status = dnnl_set_max_cpu_isa(onednn_isa(used));
    if (status != dnnl_success) {
      throw StateError(
          "[isa] oneDNN has run already, so its instruction set can no longer be capped; cap it before the "
          "first operation");
    }
  }
#endif
  applied_isa.store(used, std::memory_order_relaxed);
  isa_is_applied.store(true, std::memory_order_release);
}

void try_apply_isa() noexcept {
  try {
    apply_isa();
  } catch (const Error&) {
  }
}

}  // namespace everyo::kernels
