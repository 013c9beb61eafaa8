#pragma once
#include <cstddef>
#include <string_view>

#include "everyo/communicator.h"

// What a group checks before it exchanges anything.
namespace everyo::parallel {

/// Throws ShapeError for bytes that are no whole elements, DTypeError for a reduction the dtype has not.
void check_reduction(std::string_view collective, std::size_t bytes, DType dtype, ReduceOp op);
/// Throws ShapeError unless `whole` is world_size parts.
void check_parts(std::string_view collective, std::size_t part, std::size_t whole, int world_size);
/// Throws ValueError (distributed) for a root that is no rank.
void check_root(std::string_view collective, int root, int world_size);

}  // namespace everyo::parallel
