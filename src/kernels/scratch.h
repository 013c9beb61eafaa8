#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/pool.h"

namespace everyo::kernels {

/// `count` elements of room for the length of a scope, uninitialised, aligned to 64, from the caching allocator:
/// counted as workspace, and once warm without a system allocation. Throws std::bad_alloc.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), data_(static_cast<T*>(pool_take(bytes_))) {
    pool_account(MemoryCategory::workspace, static_cast<std::int64_t>(bytes_));
  }
  ~Scratch() {
    pool_account(MemoryCategory::workspace, -static_cast<std::int64_t>(bytes_));
    pool_give(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

}  // namespace everyo::kernels
