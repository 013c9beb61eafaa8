#pragma once
#include "everyo/tensor.h"

namespace everyo::verify_room {

/// Casts as a library with one fault would make them: what the sabotages use. x float32 -> dtype float16 or bfloat16.
enum class CastFault { none, truncates, flushes_subnormals, saturates };
Tensor faulty_cast(const Tensor& x, DType dtype, CastFault fault);

}  // namespace everyo::verify_room
