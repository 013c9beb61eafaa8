#pragma once
#include "everyo/dtype.h"

// What the norms' kernels take beside x.
namespace everyo::kernels {

/// Values of a floating dtype, or null.
struct NormParameter {
  DType dtype = float32;
  const void* values = nullptr;
};
struct NormParameters {
  NormParameter weight, bias;  ///< one value a channel, or a column of a row; null: 1 and 0
};
struct NormGradient {
  DType dtype = float32;
  void* values = nullptr;
};

/// What of the gradients is wanted: null for the others.
struct NormGradients {
  void* x = nullptr;  ///< may be grad's memory
  NormGradient weight{}, bias{};
};

}  // namespace everyo::kernels
