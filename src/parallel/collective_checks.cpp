#include "parallel/collective_checks.h"

#include <fmt/format.h>

#include "everyo/error.h"

namespace everyo::parallel {

void check_reduction(std::string_view collective, std::size_t bytes, DType dtype, ReduceOp op) {
  if (bytes % size_of(dtype) != 0)
    throw ShapeError(fmt::format("[{}] {} bytes are no whole number of {} elements of {} bytes", collective, bytes,
                                 name_of(dtype), size_of(dtype)));
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  if ((sums && dtype == boolean) || (op == ReduceOp::mean && !is_floating(dtype)))
    throw DTypeError(fmt::format("[{}] {} of {}; a sum needs numbers, a mean floating ones", collective, name_of(op),
                                 name_of(dtype)));
}

void check_parts(std::string_view collective, std::size_t part, std::size_t whole, int world_size) {
  if (part * static_cast<std::size_t>(world_size) == whole) return;
  throw ShapeError(fmt::format("[{}] a part has {} bytes, the whole {}; with {} rank{} it must be {}", collective, part,
                               whole, world_size, world_size == 1 ? "" : "s",
                               part * static_cast<std::size_t>(world_size)));
}

void check_root(std::string_view collective, int root, int world_size) {
  if (root >= 0 && root < world_size) return;
  throw ValueError(
      fmt::format("[{}] root is {}; {}", collective, root,
                  world_size == 1 ? "the only rank is 0" : fmt::format("ranks are 0 to {}", world_size - 1)),
      ErrorKind::distributed);
}

}  // namespace everyo::parallel
