#pragma once
#include <cstddef>
#include <cstdint>

#include "everyo/context.h"
#include "tensor/pool.h"

namespace everyo::kernels {

/// `count` elements of room for the length of a scope (0: none), uninitialised, aligned to 64, from the caching
/// allocator: counted as workspace, and once warm without a system allocation. In a parallel region it is from a cache
/// of regions that all threads share: which of them works on a block differs from run to run, so none may keep it.
/// Throws std::bad_alloc.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        region_(context().team > 1),
        data_(bytes_ == 0 ? nullptr : static_cast<T*>(pool_take(bytes_, region_))) {
    pool_account(MemoryCategory::workspace, static_cast<std::int64_t>(bytes_));
  }
  ~Scratch() {
    pool_account(MemoryCategory::workspace, -static_cast<std::int64_t>(bytes_));
    if (data_) pool_give(data_, bytes_, region_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  bool region_;
  T* data_;
};

}  // namespace everyo::kernels
