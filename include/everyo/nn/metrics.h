#pragma once
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// Fraction of rows whose class is right, 0 for no rows. Each side is scores [N, K], K > 1, whose class is the first
/// largest, or class numbers [N] or [N, 1]. Throws ShapeError for other ranks and for different N.
EVERYO_API double accuracy(const Tensor& prediction, const Tensor& target);

}  // namespace everyo::inline v1
