#include "base/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "everyo/error.h"

namespace everyo {
inline namespace v1 {
namespace {

constexpr std::array<std::string_view, 6> names{"baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx"};

/// The cap, and whether it is fixed, in one value: the two change together.
constexpr std::uint8_t frozen_bit = 0x80, no_cap = static_cast<std::uint8_t>(Isa::amx);
constinit std::atomic<std::uint8_t> cap{no_cap};

constexpr Isa cap_in(std::uint8_t value) noexcept { return static_cast<Isa>(value & ~frozen_bit); }

Isa environment_isa() {
  const char* name = std::getenv("EVERYO_ISA");
  if (name == nullptr || *name == '\0') return Isa::amx;
  try {
    return isa_of(name);
  } catch (const ValueError& error) {
    throw ValueError(fmt::format("{} (from the environment variable EVERYO_ISA)", error.what()));
  }
}

#if defined(__x86_64__)
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned part) noexcept {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

/// Tile data is state that Linux gives to processes that ask for it (Documentation/arch/x86/xstate.rst). What the
/// kernel, the hypervisor or a filter refuses is not there.
bool tiles_are_granted() noexcept {
  constexpr long ask = 0x1023, granted = 0x1022, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, ARCH_GET_XCOMP_PERM
  std::uint64_t states = 0;
  return syscall(SYS_arch_prctl, ask, tile_data) == 0 && syscall(SYS_arch_prctl, granted, &states) == 0 &&
         (states >> tile_data & 1) != 0;
}

Isa detect() noexcept {
  // These look at the operating system's part (XCR0) too.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) {
    return Isa::baseline;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512cd") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl")) {
    return Isa::avx2;
  }
  // Leaf 7 (Intel SDM volume 2A, CPUID). These use the state of AVX-512, which is enabled by here.
  const Registers first = cpuid(7, 0), second = cpuid(7, 1);
  const auto bit = [](unsigned value, int index) { return (value >> index & 1u) != 0; };
  if (!bit(first.c, 11) || !bit(second.a, 5)) return Isa::avx512;               // VNNI, BF16
  if (!bit(first.d, 23)) return Isa::avx512_bf16;                               // FP16
  const bool tiles = bit(first.d, 22) && bit(first.d, 24) && bit(first.d, 25);  // BF16, TILE, INT8
  return tiles && tiles_are_granted() ? Isa::amx : Isa::avx512_fp16;
}
#endif

}  // namespace

std::string_view name_of(Isa isa) noexcept { return names[static_cast<std::size_t>(isa)]; }

Isa isa_of(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw ValueError(fmt::format("[isa] unknown instruction set '{}'; need one of {}", name, fmt::join(names, ", ")));
  }
  return static_cast<Isa>(found - names.begin());
}

Isa detected_isa() noexcept {
#if defined(__x86_64__)
  static const Isa found = detect();  // CPUID is slow under a hypervisor
  return found;
#else
  return Isa::baseline;
#endif
}

Isa isa() { return std::min({detected_isa(), environment_isa(), cap_in(cap.load(std::memory_order_acquire))}); }

void cap_isa(Isa most) {
  const Isa wanted = std::min({detected_isa(), environment_isa(), most});
  std::uint8_t now = cap.load(std::memory_order_acquire);
  while ((now & frozen_bit) == 0) {
    if (cap.compare_exchange_weak(now, static_cast<std::uint8_t>(most), std::memory_order_acq_rel)) return;
  }
  const Isa used = isa();
  if (wanted == used) return;
  throw StateError(
      fmt::format("[cap_isa] kernels have run with {} already, so {} comes too late; cap the instruction "
                  "set before the first operation, or set EVERYO_ISA",
                  name_of(used), name_of(most)));
}

}  // namespace v1

namespace base {

Isa freeze_isa() {
  const Isa used = isa();  // throws before anything is fixed
  cap.fetch_or(frozen_bit, std::memory_order_acq_rel);
  return used;
}

}  // namespace base
}  // namespace everyo
