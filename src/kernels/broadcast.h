#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "everyo/shape.h"

// How N operands are walked together with the result that they broadcast to.
namespace everyo::kernels {

/// Dimensions of the result with the operands' strides in elements (0: repeated), outermost first. Dimensions of size 1
/// are dropped and neighbours merged, so equal shapes are one dimension, [M, N] with [N] two. The innermost strides are
/// 0 or 1.
template <std::size_t operands>
struct BroadcastPlan {
  std::int64_t elements = 0;  ///< of the result
  int rank = 0;
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> size{};
  std::array<std::array<std::int64_t, operands>, static_cast<std::size_t>(Shape::max_rank)> stride{};

  [[nodiscard]] bool repeats_inside(std::size_t operand) const noexcept {
    return rank > 0 && stride[static_cast<std::size_t>(rank - 1)][operand] == 0;
  }
};

/// The shapes broadcast to `result`, as NumPy says: aligned at the last dimension, each size equal or 1.
template <std::size_t operands>
BroadcastPlan<operands> broadcast_plan(const Shape& result, const std::array<const Shape*, operands>& shapes) noexcept {
  BroadcastPlan<operands> plan;
  plan.elements = result.elements();
  bool equal = true;
  for (const Shape* shape : shapes) equal = equal && *shape == result;
  if (equal) {
    plan.rank = 1;
    plan.size[0] = plan.elements;
    plan.stride[0].fill(1);
    return plan;
  }
  // Built innermost first, then turned round.
  std::array<std::int64_t, operands> next;
  next.fill(1);
  for (std::int64_t d = 1; d <= result.rank(); ++d) {
    const std::int64_t size = result[-d];
    if (size == 1) continue;
    std::array<std::int64_t, operands> stride{};
    for (std::size_t k = 0; k < operands; ++k) {
      if (d > shapes[k]->rank() || (*shapes[k])[-d] == 1) continue;
      stride[k] = next[k];
      next[k] *= size;
    }
    if (plan.rank > 0) {
      const auto inner = static_cast<std::size_t>(plan.rank - 1);
      bool merges = true;
      for (std::size_t k = 0; k < operands; ++k)
        merges = merges && stride[k] == plan.stride[inner][k] * plan.size[inner];
      if (merges) {
        plan.size[inner] *= size;
        continue;
      }
    }
    plan.size[static_cast<std::size_t>(plan.rank)] = size;
    plan.stride[static_cast<std::size_t>(plan.rank++)] = stride;
  }
  for (int i = 0, j = plan.rank - 1; i < j; ++i, --j) {
    std::swap(plan.size[static_cast<std::size_t>(i)], plan.size[static_cast<std::size_t>(j)]);
    std::swap(plan.stride[static_cast<std::size_t>(i)], plan.stride[static_cast<std::size_t>(j)]);
  }
  return plan;
}

/// Calls run(offsets, begin, count) for stretches of the result's elements [begin, end) along the innermost dimension;
/// offsets[k] is operand k's first element.
template <std::size_t operands, class Run>
void for_each_run(const BroadcastPlan<operands>& plan, std::int64_t begin, std::int64_t end, Run&& run) {
  std::array<std::int64_t, operands> offsets{};
  if (plan.rank <= 1) {
    if (plan.rank == 1)
      for (std::size_t k = 0; k < operands; ++k) offsets[k] = begin * plan.stride[0][k];
    run(offsets, begin, end - begin);
    return;
  }
  const auto inner = static_cast<std::size_t>(plan.rank - 1);
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> index{};
  std::int64_t rest = begin;
  for (std::size_t d = inner + 1; d-- > 0;) {
    index[d] = rest % plan.size[d];
    rest /= plan.size[d];
    for (std::size_t k = 0; k < operands; ++k) offsets[k] += index[d] * plan.stride[d][k];
  }
  while (begin < end) {
    const std::int64_t left = plan.size[inner] - index[inner], count = left < end - begin ? left : end - begin;
    run(offsets, begin, count);
    begin += count;
    for (std::size_t k = 0; k < operands; ++k) offsets[k] -= index[inner] * plan.stride[inner][k];
    index[inner] = 0;
    for (std::size_t d = inner; d-- > 0;) {
      for (std::size_t k = 0; k < operands; ++k) offsets[k] += plan.stride[d][k];
      if (++index[d] < plan.size[d]) break;
      for (std::size_t k = 0; k < operands; ++k) offsets[k] -= plan.size[d] * plan.stride[d][k];
      index[d] = 0;
    }
  }
}

}  // namespace everyo::kernels
