#pragma once
#include <cstdint>
#include <string_view>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// The instruction sets that kernels choose among, lowest first; each has all that those before it have. The choice is
/// made once, at run time. Results on different sets differ by roundings; on one set they are the same bits on every
/// run, so it is reported with a result. The sets above avx512 change products of halves only: float32 and float64 have
/// avx512's bits there.
enum class Isa : std::uint8_t {
  baseline,     ///< what every processor of this architecture has
  avx2,         ///< AVX2, FMA, BMI2, F16C
  avx512,       ///< AVX-512 F, CD, DQ, BW, VL
  avx512_bf16,  ///< and VNNI, BF16: products of bfloat16 pairs
  avx512_fp16,  ///< and FP16: float16 arithmetic
  amx,          ///< and AMX TILE, INT8, BF16: tiles of bfloat16
};

/// "baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx".
EVERYO_API std::string_view name_of(Isa isa) noexcept;
/// Throws ValueError for a name that is none of those.
EVERYO_API Isa isa_of(std::string_view name);

/// The highest set that this processor and its operating system have. Tiles are a process's only once it has asked for
/// them: where the processor has AMX, the first call asks.
EVERYO_API Isa detected_isa() noexcept;

/// The set that kernels use: detected_isa(), lowered by the environment's EVERYO_ISA and by cap_isa(). Throws
/// ValueError when EVERYO_ISA is no instruction set's name.
EVERYO_API Isa isa();

/// Kernels use `most` at the most (ranks of one run agree on their lowest; tests force each). Throws StateError once a
/// kernel has run, unless nothing would change.
EVERYO_API void cap_isa(Isa most);

}  // namespace everyo::inline v1
