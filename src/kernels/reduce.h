#pragma once
#include <array>
#include <cstdint>

#include "everyo/dtype.h"
#include "everyo/shape.h"
#include "kernels/fold.h"

// Reductions over any set of axes. Floating elements are accumulated in float64 and rounded once on store; integers and
// booleans are summed in int64. The order of a sum depends on the shape and axes alone, so the bits are the same for
// every number of threads, every alignment, and every instruction set.
namespace everyo::kernels {

enum class ReduceKind : std::uint8_t { sum, mean, max, min };

/// Axes as a set: bit i stands for dimension i.
using AxisSet = std::uint32_t;
constexpr AxisSet axis_bit(std::int64_t axis) noexcept { return AxisSet{1} << axis; }
constexpr AxisSet all_axes(std::int64_t rank) noexcept { return (AxisSet{1} << rank) - 1; }

/// One dimension of a walk over memory.
struct Run {
  std::int64_t size = 1, stride = 0;
};

/// A contiguous tensor as a reduction sees it: dimensions of size 1 dropped, neighbours that are both kept or both
/// reduced merged. Outermost first.
struct ReduceLayout {
  std::array<Run, static_cast<std::size_t>(Shape::max_rank)> kept{}, reduced{};
  int kept_runs = 0, reduced_runs = 0;
  std::int64_t outputs = 1;   ///< product of the kept sizes
  std::int64_t elements = 1;  ///< product of the reduced sizes: what one output is made of
  bool inner_reduced = true;  ///< the contiguous run is a reduced one
};
ReduceLayout reduce_layout(const Shape& shape, AxisSet reduced) noexcept;

/// Dtype of a sum: int64 for integers and booleans, else the input's.
constexpr DType sum_dtype(DType dtype) noexcept { return is_floating(dtype) ? dtype : int64; }

/// out[layout.outputs] of `out_dtype` from the contiguous `x`. mean divides the wide sum, so it holds for more elements
/// than a float16 can count; the mean of nothing is NaN, a sum of nothing 0. max and min of nothing are the caller's to
/// refuse. Integer inputs: sum gives int64, max and min their own dtype; mean takes floating inputs only.
void reduce(ReduceKind kind, const ReduceLayout& layout, DType dtype, const void* x, DType out_dtype, void* out);

/// Index of the first greatest (or first NaN) element along the middle of [outer, count, inner]; count > 0.
void argmax(DType dtype, const void* x, std::int64_t outer, std::int64_t count, std::int64_t inner, std::int64_t* out);

/// Gradient of max and min: grad_x = grad where x equals its output, divided by the number of such elements, else 0.
/// All of one floating dtype.
void reduce_extreme_backward(const ReduceLayout& layout, DType dtype, const void* x, const void* output,
                             const void* grad, void* grad_x);

}  // namespace everyo::kernels
