#pragma once
#include <atomic>
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

  /// Writes through a view outside the library are found by comparing fingerprints of the bytes. From here to
  /// close_view() a view is open; closing it counts a write if bytes have changed since.
  void open_view();
  void close_view() noexcept;
  /// The memory is a caller's, who may write there at any time: a view that never closes.
  void watch_always();
  /// Is a view open? A value saved for backward then keeps its own fingerprint.
  [[nodiscard]] bool watched() const noexcept;
  /// Counts a write if bytes have changed since the first of the open views was opened, or since the last look.
  void look() noexcept;
  /// A number that changes when any of these bytes does.
  [[nodiscard]] std::uint64_t fingerprint(std::size_t offset, std::size_t bytes) const noexcept;

  void release() noexcept {
    if (drop()) destroy();
  }

 private:
  Storage() = default;
  ~Storage();
  void destroy() noexcept;
  struct Watch;
  Watch& watch();

  std::uint32_t version_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, block_ = 0;
  std::uint64_t scope_ = 0;
  std::unique_ptr<std::function<void()>> deleter_;  // of borrowed memory
  std::atomic<Watch*> watch_{nullptr};              // owned; none until the first view
  MemoryCategory category_ = MemoryCategory::activation;
  bool escaped_ = false;
};

}  // namespace everyo::inline v1
