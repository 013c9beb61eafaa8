#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "everyo/context.h"
#include "everyo/ref.h"

namespace everyo::inline v1 {

/// The bytes behind tensors: from the caching allocator, or borrowed from a caller.
class EVERYO_API Storage : public RefCount {
 public:
  /// `bytes` bytes, uninitialised, 64-byte aligned, counted under `category` and the module being called.
  static Ref<Storage> take(std::size_t bytes, MemoryCategory category);
  /// A caller's memory, aligned for its elements; `deleter` runs when the last tensor over it is gone. Not counted.
  static Ref<Storage> borrow(void* data, std::size_t bytes, std::function<void()> deleter);

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] MemoryCategory category() const noexcept { return category_; }
  /// Hash of the path of the module that asked for it; 0 outside any.
  [[nodiscard]] std::uint64_t scope() const noexcept { return scope_; }
  /// Moves the bytes to another category when their owner changes (an activation that becomes a gradient).
  void retag(MemoryCategory category) noexcept;

  /// Counts writes, so that a value saved for backward knows whether it was changed.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  void bump_version() noexcept { ++version_; }

  /// True once a writable view left the library (NumPy, DLPack): writes can no longer be counted, so nothing derived
  /// from these bytes may be cached.
  [[nodiscard]] bool escaped() const noexcept { return escaped_; }
  void mark_escaped() noexcept { escaped_ = true; }

  void release() noexcept {
    if (drop()) destroy();
  }

 private:
  Storage() = default;
  ~Storage() = default;
  void destroy() noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, block_ = 0;
  std::uint64_t scope_ = 0;
  std::uint32_t version_ = 0;
  MemoryCategory category_ = MemoryCategory::activation;
  bool escaped_ = false;
  std::unique_ptr<std::function<void()>> deleter_;  // of borrowed memory
};

}  // namespace everyo::inline v1
