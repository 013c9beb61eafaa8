#pragma once
#include <cstdint>
#include <string_view>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// The instruction sets that kernels are compiled for, lowest first. The choice is made once, at run time. Results on
/// different sets differ by roundings; on one set they are the same bits on every run, so it is reported with a result.
enum class Isa : std::uint8_t {
  baseline,  ///< what every processor of this architecture has
  avx2,      ///< AVX2, FMA, BMI2, F16C
  avx512,    ///< AVX-512 F, CD, DQ, BW, VL
};

/// "baseline", "avx2", "avx512".
EVERYO_API std::string_view name_of(Isa isa) noexcept;
/// Throws ValueError for a name that is none of those.
EVERYO_API Isa isa_of(std::string_view name);

/// The highest set that this processor and its operating system have.
EVERYO_API Isa detected_isa() noexcept;

/// The set that kernels use: detected_isa(), lowered by the environment's EVERYO_ISA and by cap_isa(). Throws
/// ValueError when EVERYO_ISA is no instruction set's name.
EVERYO_API Isa isa();

/// Kernels use `most` at the most (ranks of one run agree on their lowest; tests force each). Throws StateError once a
/// kernel has run, unless nothing would change.
EVERYO_API void cap_isa(Isa most);

/// What the processor has besides: reported, and used by kernels under Isa::avx512 where they can.
struct IsaExtensions {
  bool avx512_bf16 = false;  ///< products of bfloat16 pairs
  bool avx512_fp16 = false;  ///< float16 arithmetic
  bool amx = false;          ///< tiles of bfloat16
};
EVERYO_API IsaExtensions isa_extensions() noexcept;

}  // namespace everyo::inline v1
