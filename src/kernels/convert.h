#pragma once
#include <cstdint>

#include "everyo/dtype.h"

namespace everyo::kernels {

/// out[n] of dtype `to` = in[n] of dtype `from`; the two do not overlap, except that equal dtypes may be the same
/// memory.
/// - To a floating dtype: one rounding, to nearest with ties to even; NaN stays NaN, overflow gives infinity.
/// - To an integer from floating: towards zero; beyond the range the nearest end; NaN gives 0.
/// - Between integers: the low bits, as in C and NumPy. To bool: whether it is not 0 (NaN is not).
/// An element's bits do not depend on where it lies, nor on the instruction set.
void convert(DType from, const void* in, DType to, void* out, std::int64_t n);

}  // namespace everyo::kernels
