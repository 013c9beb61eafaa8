#pragma once
#include <utility>

#include "everyo/onnx_graph.h"

// What the records' ONNX forms share.
namespace everyo::inline v1 {

/// v in `dtype`; v itself when it has it.
onnx::Value lower_cast(onnx::Graph& g, const onnx::Value& v, DType dtype);

/// `compute` on x in float32 when x is a half, and its result rounded to a half once, as the kernels do: a runtime may
/// accumulate halves in halves. Others are computed as they are.
template <class F>
onnx::Value lower_wide(onnx::Graph& g, const onnx::Value& x, F&& compute) {
  if (!is_half(x.spec.dtype)) return std::forward<F>(compute)(x);
  return lower_cast(g, std::forward<F>(compute)(lower_cast(g, x, float32)), x.spec.dtype);
}

/// A reduction over `axes`, which opset 18 moved from an attribute to an input; ReduceSum has it there from 13 on.
onnx::Value lower_reduction(onnx::Graph& g, const char* type, const onnx::Value& x,
                            const std::vector<std::int64_t>& axes, bool keep_dims, const Shape& result);

}  // namespace everyo::inline v1
