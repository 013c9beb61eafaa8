#pragma once
#include <vector>

#include "tensor/pool.h"

namespace everyo::inline v1 {

/// Lets a standard container live in the caching allocator, so that a short-lived one costs no system allocation.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) noexcept {}  // NOLINT: allocators convert
  T* allocate(std::size_t count) { return static_cast<T*>(pool_take(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) noexcept { pool_give(block, count * sizeof(T)); }
  friend bool operator==(PoolAllocator, PoolAllocator) { return true; }
};
template <class T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace everyo::inline v1
