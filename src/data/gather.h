#pragma once
#include <cstdint>
#include <span>

#include "everyo/tensor.h"

namespace everyo::data {

/// A copy of the rows of `all` [N, ..] at `indices` [B], in 0..N-1: [B, ..], category input.
Tensor gather(const Tensor& all, std::span<const std::int64_t> indices);

/// Rows first … first+count-1 of `all` [N, ..]: [count, ..], sharing its storage.
Tensor view_rows(const Tensor& all, std::int64_t first, std::int64_t count);

/// Row `row` of `all` [N, ..]: [..], sharing its storage.
Tensor row_of(const Tensor& all, std::int64_t row);

}  // namespace everyo::data
