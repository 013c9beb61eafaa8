#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace everyo::inline v1 {

/// A count of owners inside the counted object.
class RefCount {
 public:
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// True when the caller was the last owner. A sole owner gives up without a locked instruction.
  [[nodiscard]] bool drop() const noexcept {
    if (count_.load(std::memory_order_acquire) == 1) return true;
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  [[nodiscard]] std::uint32_t owners() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  mutable std::atomic<std::uint32_t> count_{1};
};

/// Shared ownership of a T that has retain() and release().
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) noexcept {}  // NOLINT: null stands where a Ref does
  /// One more owner.
  static Ref share(T* p) noexcept {
    if (p) p->retain();
    return adopt(p);
  }
  /// Takes over the caller's count.
  static Ref adopt(T* p) noexcept {
    Ref r;
    r.p_ = p;
    return r;
  }
  Ref(const Ref& other) noexcept : p_(other.p_) {
    if (p_) p_->retain();
  }
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  [[nodiscard]] T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

}  // namespace everyo::inline v1
