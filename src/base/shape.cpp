#include "everyo/shape.h"

#include <fmt/format.h>

#include <ostream>

#include "everyo/error.h"

namespace everyo::inline v1 {

void Shape::too_many_dimensions(std::size_t count) {
  throw ShapeError(fmt::format("[shape] {} dimensions; at most {} are supported", count, max_rank));
}

void Shape::negative_size(std::int64_t size) {
  throw ShapeError(fmt::format("[shape] size {} of a dimension is negative; need sizes of 0 or more", size));
}

void Shape::too_many_elements() { throw ShapeError("[shape] more than 2^59 elements; use smaller sizes"); }

std::string to_string(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape.sizes(), ", "), shape.rank() == 1 ? "," : "");
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

std::int64_t axis_of(std::string_view op, std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank) {
    if (rank == 0)
      throw ShapeError(fmt::format("[{}] axis {} is out of range for a scalar, which has no axes", op, axis));
    throw ShapeError(
        fmt::format("[{}] axis {} is out of range for {} dimensions; need {} to {}", op, axis, rank, -rank, rank - 1));
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace everyo::inline v1
