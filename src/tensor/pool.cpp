#include "tensor/pool.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

#include "everyo/memory.h"

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

namespace everyo::inline v1 {
namespace {

#ifdef EVERYO_POISON
void poison(void* block, std::size_t bytes) noexcept {
  __asan_poison_memory_region(block, bytes);
}
void unpoison(void* block, std::size_t bytes) noexcept {
  __asan_unpoison_memory_region(block, bytes);
}
#else
void poison(void*, std::size_t) noexcept {}
void unpoison(void*, std::size_t) noexcept {}
#endif

// Classes: steps of 64 bytes to 1 KiB, then four to each doubling up to 2^40.
constexpr std::size_t fine_classes = 16, steps = 4, class_count = fine_classes + 30 * steps;
constexpr std::size_t local_classes = fine_classes + 5 * steps;  // up to 32 KiB a thread keeps its own
constexpr std::uint32_t local_limit = 256;                       // blocks of a class in a thread's list

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
constinit thread_local ThreadPool local;  // no destructor: no guard on access

struct Shared {
  std::mutex mutex;
  std::array<FreeBlock*, class_count> head{};
  std::int64_t cached = 0;
  ThreadPool* threads = nullptr;
  std::array<std::int64_t, memory_category_count> ended_now{}, ended_peak{};
  std::int64_t ended_total_now = 0, ended_total_peak = 0, ended_allocations = 0;
};
constinit Shared shared;

void shared_give(FreeBlock* block, std::size_t c) noexcept {
  const std::lock_guard lock(shared.mutex);
  block->next = shared.head[c];
  shared.head[c] = block;
  shared.cached += static_cast<std::int64_t>(bytes_of(c));
}
FreeBlock* shared_take(std::size_t c) noexcept {
  const std::lock_guard lock(shared.mutex);
  FreeBlock* block = shared.head[c];
  if (!block) return nullptr;
  unpoison(block, sizeof(FreeBlock));
  shared.head[c] = block->next;
  shared.cached -= static_cast<std::int64_t>(bytes_of(c));
  return block;
}

// At a thread's end its blocks go to the shared cache and its account into the sum.
struct AtThreadEnd {
  AtThreadEnd() {
    const std::lock_guard lock(shared.mutex);
    local.next = shared.threads;
    shared.threads = &local;
    local.listed = true;
  }
  ~AtThreadEnd() {
    for (std::size_t c = 0; c < local_classes; ++c)
      while (FreeBlock* block = local.head[c]) {
        unpoison(block, sizeof(FreeBlock));
        local.head[c] = block->next;
        shared_give(block, c);
        poison(block, bytes_of(c));
      }
    const std::lock_guard lock(shared.mutex);
    local.dead = true;
    ThreadPool** at = &shared.threads;
    while (*at != &local) at = &(*at)->next;
    *at = local.next;
    for (std::size_t k = 0; k < memory_category_count; ++k) {
      shared.ended_now[k] += local.ledger.by_category[k].now.get();
      shared.ended_peak[k] += local.ledger.by_category[k].now.get();
    }
    shared.ended_total_now += local.ledger.total.now.get();
    shared.ended_total_peak += local.ledger.total.now.get();
    shared.ended_allocations += local.ledger.system_allocations.get();
  }
};
[[gnu::noinline]] void list_this_thread() {
  static thread_local AtThreadEnd at_end;
}

[[gnu::noinline]] void* slow_take(std::size_t bytes, std::size_t c) {
  if (!local.listed && !local.dead) list_this_thread();
  if (c < class_count)
    if (FreeBlock* block = shared_take(c)) return block;
  const std::size_t size = c < class_count ? bytes_of(c) : (bytes + 63) / 64 * 64;
  local.ledger.system_allocations.add(1);
  void* block = std::aligned_alloc(64, size);
  if (!block) {
    memory::trim();
    block = std::aligned_alloc(64, size);
  }
  if (!block) throw std::bad_alloc();
  return block;
}

}  // namespace

void* pool_take(std::size_t bytes) {
  const std::size_t c = class_of(bytes);
  void* block = nullptr;
  if (c < local_classes && local.head[c]) [[likely]] {
    FreeBlock* head = local.head[c];
    unpoison(head, sizeof(FreeBlock));
    local.head[c] = head->next;
    --local.count[c];
    block = head;
  } else {
    block = slow_take(bytes, c);
  }
#ifdef EVERYO_POISON
  if (c < class_count) poison(block, bytes_of(c));
#endif
  unpoison(block, bytes);
  return block;
}

void pool_give(void* block, std::size_t bytes) noexcept {
  const std::size_t c = class_of(bytes);
  if (c >= class_count) {
    std::free(block);
    return;
  }
  unpoison(block, sizeof(FreeBlock));
  auto* freed = new (block) FreeBlock{nullptr};
  if (c < local_classes && local.count[c] < local_limit && local.listed && !local.dead) [[likely]] {
    freed->next = local.head[c];
    local.head[c] = freed;
    ++local.count[c];
  } else {
    shared_give(freed, c);
  }
  poison(block, bytes_of(c));
}

void pool_account(MemoryCategory category, std::int64_t bytes) noexcept {
  if (!local.listed && !local.dead) [[unlikely]]
    list_this_thread();
  local.ledger.by_category[static_cast<std::size_t>(category)].add(bytes);
  local.ledger.total.add(bytes);
}

namespace memory {

Report report() {
  Report r;
  const std::lock_guard lock(shared.mutex);
  r.cached = shared.cached;
  std::int64_t allocations = shared.ended_allocations;
  for (std::size_t k = 0; k < memory_category_count; ++k)
    r.by_category[k] = {shared.ended_now[k], shared.ended_peak[k]};
  r.total = {shared.ended_total_now, shared.ended_total_peak};
  for (const ThreadPool* t = shared.threads; t; t = t->next) {
    for (std::size_t k = 0; k < memory_category_count; ++k) {
      r.by_category[k].now += t->ledger.by_category[k].now.get();
      r.by_category[k].peak += t->ledger.by_category[k].peak.get();
    }
    r.total.now += t->ledger.total.now.get();
    r.total.peak += t->ledger.total.peak.get();
    allocations += t->ledger.system_allocations.get();
  }
  r.system_allocations = static_cast<std::uint64_t>(allocations);
  return r;
}

void reset_peak() {
  const std::lock_guard lock(shared.mutex);
  shared.ended_peak = shared.ended_now;
  shared.ended_total_peak = shared.ended_total_now;
  for (ThreadPool* t = shared.threads; t; t = t->next) {
    for (auto& account : t->ledger.by_category) account.peak.set(account.now.get());
    t->ledger.total.peak.set(t->ledger.total.now.get());
  }
}

void trim() {
  const std::lock_guard lock(shared.mutex);
  for (auto& head : shared.head)
    while (FreeBlock* block = head) {
      unpoison(block, sizeof(FreeBlock));
      head = block->next;
      std::free(block);
    }
  shared.cached = 0;
}

std::string to_string(const Report& report) {
  static constexpr std::array<const char*, memory_category_count> names{
      "parameter", "gradient", "optimizer_state", "activation", "communication", "workspace", "input"};
  std::string text = fmt::format("{:<16}{:>14}{:>14}\n", "category", "bytes now", "at peak");
  for (std::size_t k = 0; k < memory_category_count; ++k)
    text += fmt::format("{:<16}{:>14}{:>14}\n", names[k], report.by_category[k].now, report.by_category[k].peak);
  return text + fmt::format("{:<16}{:>14}{:>14}\n", "total", report.total.now, report.total.peak);
}

}  // namespace memory
}  // namespace everyo::inline v1
