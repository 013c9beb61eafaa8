#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "everyo/tensor.h"

namespace everyo::data {

/// What one of the rows is.
inline Spec row_spec(const Spec& rows) { return {rows.dtype, Shape(rows.shape.sizes().subspan(1))}; }
/// What `count` rows like one are.
Spec stacked(const Spec& one, std::int64_t count);

/// Throw ShapeError that begins with `what`, the data set: unless all indices are in 0..samples-1; unless rows
/// first … first+count-1 are among `samples`; unless a row is what those before were.
void check_indices(std::string_view what, std::span<const std::int64_t> indices, std::int64_t samples);
void check_range(std::string_view what, std::int64_t first, std::int64_t count, std::int64_t samples);
void check_same_row(std::string_view what, const Spec& row, const Spec& before);

/// A copy of the rows of `all` [N, ..] at `indices` [B], in 0..N-1: [B, ..], category input.
Tensor gather(const Tensor& all, std::span<const std::int64_t> indices);

/// The same of bytes that no tensor owns, `all` being those of `spec`.
Tensor gather(std::span<const std::byte> all, const Spec& spec, std::span<const std::int64_t> indices);

/// Rows first … first+count-1 of `all` [N, ..]: [count, ..], sharing its storage.
Tensor view_rows(const Tensor& all, std::int64_t first, std::int64_t count);

/// Row `row` of `all` [N, ..]: [..], sharing its storage.
Tensor row_of(const Tensor& all, std::int64_t row);

}  // namespace everyo::data
