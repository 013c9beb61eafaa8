#pragma once
#include <cstdint>

#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// Fraction of rows whose class is right, 0 for no rows. Each side is scores [N, K], K > 1, whose class is the first
/// largest, or class numbers [N] or [N, 1]. Throws ShapeError for other ranks and for different N.
EVERYO_API double accuracy(const Tensor& prediction, const Tensor& target);

/// How often each class was taken for each: int64 [classes, classes], row the target's class, column the prediction's.
/// Sides as in accuracy(), and the same ShapeErrors. Throws ValueError for fewer than one class, and naming the first
/// row whose class is no whole number of 0..classes-1.
EVERYO_API Tensor confusion_matrix(const Tensor& prediction, const Tensor& target, std::int64_t classes);

}  // namespace everyo::inline v1
