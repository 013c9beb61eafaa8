#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "everyo/context.h"

#if defined(__SANITIZE_ADDRESS__)
#define EVERYO_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EVERYO_POISON 1
#endif
#endif
#ifdef EVERYO_POISON
#include <sanitizer/asan_interface.h>
#endif

// The caching allocator under every tensor, tape node and scratch buffer. Blocks are 64-byte aligned and come in size
// classes; small ones wait in a list of the thread, large ones (and a thread's surplus) in a cache all threads share.
// The short way through is here, to be inlined; the rest is in pool.cpp.
namespace everyo::inline v1 {
namespace pool {

#ifdef EVERYO_POISON
inline void poison(void* block, std::size_t bytes) noexcept { __asan_poison_memory_region(block, bytes); }
inline void unpoison(void* block, std::size_t bytes) noexcept { __asan_unpoison_memory_region(block, bytes); }
#else
inline void poison(void*, std::size_t) noexcept {}
inline void unpoison(void*, std::size_t) noexcept {}
#endif

// Classes: steps of 64 bytes to 1 KiB, then four to each doubling up to 2^40.
inline constexpr std::size_t fine_classes = 16, steps = 4, class_count = fine_classes + 30 * steps;
inline constexpr std::size_t local_classes = fine_classes + 5 * steps;  // up to 32 KiB a thread keeps its own
inline constexpr std::uint32_t local_limit = 256;                       // blocks of a class in a thread's list

constexpr std::size_t class_of(std::size_t bytes) noexcept {
  if (bytes <= 1024) return bytes ? (bytes - 1) / 64 : 0;
  const auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^doubling <= bytes - 1
  return fine_classes + (doubling - 10) * steps + ((bytes - 1) >> (doubling - 2)) - steps;
}
constexpr std::size_t bytes_of(std::size_t c) noexcept {
  if (c < fine_classes) return (c + 1) * 64;
  const std::size_t doubling = 10 + (c - fine_classes) / steps, step = (c - fine_classes) % steps;
  return (std::size_t{1} << doubling) + ((step + 1) << (doubling - 2));
}
static_assert(bytes_of(class_of(1024)) == 1024 && bytes_of(class_of(1025)) == 1280 && bytes_of(class_of(1280)) == 1280);
static_assert(bytes_of(class_of(2048)) == 2048 && bytes_of(class_of(2049)) == 2560 &&
              bytes_of(local_classes - 1) == 32768);

struct FreeBlock {
  FreeBlock* next;
};

// One writer, any readers: a relaxed load and store cost what plain ones do.
class Counter {
 public:
  void add(std::int64_t n) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
  void set(std::int64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};
struct Account {
  Counter now, peak;
  void add(std::int64_t bytes) noexcept {
    now.add(bytes);
    if (now.get() > peak.get()) peak.set(now.get());
  }
};
struct Ledger {
  std::array<Account, memory_category_count> by_category{};
  Account total{};
  Counter system_allocations{};
};

struct ThreadPool {
  std::array<FreeBlock*, local_classes> head{};
  std::array<std::uint32_t, local_classes> count{};
  Ledger ledger{};
  ThreadPool* next = nullptr;  // in the list of all threads
  bool listed = false, dead = false;
};
extern constinit thread_local ThreadPool local;  // no destructor: no guard on access

/// Enters the thread into the list of all, and its end into the runtime's.
[[gnu::noinline]] void list_this_thread();
/// The caches that threads share: of what overflows or outlives a thread's list, and of what parallel regions work in,
/// which nothing else may use up.
enum class Cache : std::uint8_t { common, region };
/// From a shared cache or the system. Throws std::bad_alloc.
[[gnu::noinline]] void* slow_take(std::size_t bytes, std::size_t c, Cache from);
void shared_give(FreeBlock* block, std::size_t c, Cache to) noexcept;

}  // namespace pool

/// A block of at least `bytes` bytes; `region`: from the cache of parallel regions. Throws std::bad_alloc.
inline void* pool_take(std::size_t bytes, bool region = false) {
  using namespace pool;
  const std::size_t c = class_of(bytes);
  void* block = nullptr;
  if (c < local_classes && local.head[c] && !region) [[likely]] {
    FreeBlock* head = local.head[c];
    unpoison(head, sizeof(FreeBlock));
    local.head[c] = head->next;
    --local.count[c];
    block = head;
  } else {
    block = slow_take(bytes, c, region ? Cache::region : Cache::common);
  }
#ifdef EVERYO_POISON
  if (c < class_count) poison(block, bytes_of(c));
#endif
  unpoison(block, bytes);
  return block;
}

/// `bytes` and `region` as it was taken.
inline void pool_give(void* block, std::size_t bytes, bool region = false) noexcept {
  using namespace pool;
  const std::size_t c = class_of(bytes);
  unpoison(block, sizeof(FreeBlock));
  auto* freed = new (block) FreeBlock{nullptr};
  if (c < local_classes && local.count[c] < local_limit && local.listed && !local.dead && !region) [[likely]] {
    freed->next = local.head[c];
    local.head[c] = freed;
    ++local.count[c];
  } else {
    shared_give(freed, c, region ? Cache::region : Cache::common);
    return;
  }
  poison(block, bytes_of(c));
}

/// Moves `bytes` (negative: back) into a category's account of this thread.
inline void pool_account(MemoryCategory category, std::int64_t bytes) noexcept {
  using namespace pool;
  if (!local.listed && !local.dead) [[unlikely]]
    list_this_thread();
  local.ledger.by_category[static_cast<std::size_t>(category)].add(bytes);
  local.ledger.total.add(bytes);
}

}  // namespace everyo::inline v1
