#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "everyo/dtype.h"

namespace everyo::inline v1 {

/// Sizes of at most 8 dimensions, outermost first; rank 0 is a scalar. Trivially copyable, no heap.
class Shape {
 public:
  static constexpr std::int64_t max_rank = 8;
  /// Of the product of all sizes, a size of 0 counted as 1: bytes fit into 63 bits, and so does any partial product.
  static constexpr std::int64_t max_elements = std::int64_t{1} << 59;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  /// Throws ShapeError for more than 8 dimensions, a negative size, or more than 2^59 elements.
  constexpr explicit Shape(std::span<const std::int64_t> sizes) {
    if (sizes.size() > static_cast<std::size_t>(max_rank)) too_many_dimensions(sizes.size());
    for (const std::int64_t size : sizes) push_back(size);
  }

  [[nodiscard]] constexpr std::int64_t rank() const noexcept { return rank_; }
  /// Size of dimension i; negative i counts from the last. Unchecked: use axis_of for indices from outside.
  constexpr std::int64_t operator[](std::int64_t i) const noexcept { return sizes_[at(i)]; }
  /// Changes the size of dimension i, as operator[] counts. Throws ShapeError as the constructor does.
  constexpr void set(std::int64_t i, std::int64_t size) {
    sizes_[at(i)] = 1;
    check(size);
    sizes_[at(i)] = size;
  }
  [[nodiscard]] constexpr std::span<const std::int64_t> sizes() const noexcept {
    return {sizes_.data(), static_cast<std::size_t>(rank_)};
  }
  /// Number of elements; 1 for a scalar.
  [[nodiscard]] constexpr std::int64_t elements() const noexcept {
    std::int64_t n = 1;
    for (std::int64_t i = 0; i < rank_; ++i) n *= sizes_[static_cast<std::size_t>(i)];
    return n;
  }
  /// Adds an innermost dimension. Throws ShapeError as the constructor does.
  constexpr void push_back(std::int64_t size) {
    if (rank_ == max_rank) too_many_dimensions(static_cast<std::size_t>(rank_) + 1);
    check(size);
    sizes_[static_cast<std::size_t>(rank_++)] = size;
  }
  friend constexpr bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (std::int64_t i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  // Does `size` fit beside the other sizes?
  constexpr void check(std::int64_t size) const {
    if (size < 0) negative_size(size);
    std::int64_t n = 1;
    for (std::int64_t i = 0; i < rank_; ++i)
      n *= sizes_[static_cast<std::size_t>(i)] | (sizes_[static_cast<std::size_t>(i)] == 0);
    if (size > max_elements / n) too_many_elements();
  }
  [[nodiscard]] constexpr std::size_t at(std::int64_t i) const noexcept {
    return static_cast<std::size_t>(i < 0 ? rank_ + i : i);
  }
  [[noreturn]] EVERYO_API static void too_many_dimensions(std::size_t count);
  [[noreturn]] EVERYO_API static void negative_size(std::int64_t size);
  [[noreturn]] EVERYO_API static void too_many_elements();

  std::array<std::int64_t, static_cast<std::size_t>(max_rank)> sizes_{};
  std::int64_t rank_ = 0;
};

/// As Python prints a tuple: "()", "(3,)", "(2, 3)".
EVERYO_API std::string to_string(const Shape& shape);

EVERYO_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// A dimension's index in 0..rank-1 from one that may be negative. Throws ShapeError "[op] axis … out of range …".
EVERYO_API std::int64_t axis_of(std::string_view op, std::int64_t axis, std::int64_t rank);

/// What is known of a tensor without its data: all that a meta tensor is.
struct Spec {
  DType dtype = float32;
  Shape shape;
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  }
  friend constexpr bool operator==(const Spec&, const Spec&) = default;
};
static_assert(std::is_trivially_copyable_v<Spec>);

}  // namespace everyo::inline v1
