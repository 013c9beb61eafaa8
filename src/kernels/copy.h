#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "everyo/shape.h"

// Copies that move elements without looking at them: transposes, slices, broadcasts, parts of a concatenation, borrowed
// memory with strides. Elements are 1, 2, 4 or 8 bytes.
namespace everyo::kernels {

/// Distance from one element to the next in each dimension, in elements; may be negative or 0 (a broadcast source).
using Strides = std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)>;
Strides contiguous_strides(const Shape& shape) noexcept;

/// to[i * to_strides] = from[i * from_strides] for every index i of `shape`. The two do not overlap; distinct indices
/// have distinct places in `to`. `to` and `from` point at index 0.
void copy_strided(const Shape& shape, std::size_t element_size, const void* from, const Strides& from_strides, void* to,
                  const Strides& to_strides);

/// to (contiguous) = from with its dimensions permuted: dimension i of the result is dimension permutation[i] of
/// `shape`.
void transpose(const Shape& shape, std::span<const std::int64_t> permutation, std::size_t element_size,
               const void* from, void* to);

}  // namespace everyo::kernels
