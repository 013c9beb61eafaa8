#pragma once
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// Uninitialised memory for a meta parameter or buffer.
void give_storage(const Tensor& meta);

}  // namespace everyo::inline v1
