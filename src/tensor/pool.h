#pragma once
#include <cstddef>
#include <cstdint>

#include "everyo/context.h"

// The caching allocator under every tensor, tape node and scratch buffer. Blocks are 64-byte aligned and come in size
// classes; small ones wait in a list of the thread, large ones (and a thread's surplus) in a cache all threads share.
namespace everyo::inline v1 {

/// A block of at least `bytes` bytes. Throws std::bad_alloc.
EVERYO_API void* pool_take(std::size_t bytes);
/// `bytes` as it was taken.
EVERYO_API void pool_give(void* block, std::size_t bytes) noexcept;

/// Moves `bytes` (negative: back) into a category's account of this thread.
EVERYO_API void pool_account(MemoryCategory category, std::int64_t bytes) noexcept;

}  // namespace everyo::inline v1
