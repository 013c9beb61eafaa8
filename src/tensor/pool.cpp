#include "tensor/pool.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <new>

#include "everyo/memory.h"

namespace everyo::inline v1 {
namespace pool {

constinit thread_local ThreadPool local;

namespace {

struct Shared {
  std::mutex mutex, growing;
  std::array<std::array<FreeBlock*, class_count>, 2> head{};  // of each Cache
  std::int64_t cached = 0;
  ThreadPool* threads = nullptr;
  std::array<std::int64_t, memory_category_count> ended_now{}, ended_peak{};
  std::int64_t ended_total_now = 0, ended_total_peak = 0, ended_allocations = 0;
};
constinit Shared shared;

FreeBlock* shared_take(std::size_t c, Cache from) noexcept {
  const std::lock_guard lock(shared.mutex);
  FreeBlock*& head = shared.head[static_cast<std::size_t>(from)][c];
  FreeBlock* block = head;
  if (!block) return nullptr;
  unpoison(block, sizeof(FreeBlock));
  head = block->next;
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
        shared_give(block, c, Cache::common);
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
}  // namespace

void shared_give(FreeBlock* block, std::size_t c, Cache to) noexcept {
  if (c >= class_count) {
    std::free(block);
    return;
  }
  const std::lock_guard lock(shared.mutex);
  FreeBlock*& head = shared.head[static_cast<std::size_t>(to)][c];
  block->next = head;
  head = block;
  shared.cached += static_cast<std::int64_t>(bytes_of(c));
  poison(block, bytes_of(c));
}

void list_this_thread() { static thread_local AtThreadEnd at_end; }

namespace {
void* system_take(std::size_t size) {
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

void* slow_take(std::size_t bytes, std::size_t c, Cache from) {
  if (!local.listed && !local.dead) list_this_thread();
  if (c < class_count)
    if (FreeBlock* block = shared_take(c, from)) return block;
  if (c >= class_count || from == Cache::common)
    return system_take(c < class_count ? bytes_of(c) : (bytes + 63) / 64 * 64);
  // What one thread of a parallel region needs, each will: the others, who may take part only steps later, find theirs
  // in the cache. One thread grows it at a time, so that not all of them do it for all.
  const std::lock_guard one(shared.growing);
  if (FreeBlock* block = shared_take(c, from)) return block;
  void* const own = system_take(bytes_of(c));
  try {
    for (int i = 1; i < context().team; ++i) shared_give(new (system_take(bytes_of(c))) FreeBlock{nullptr}, c, from);
  } catch (const std::bad_alloc&) {  // then they must do without
  }
  return own;
}

}  // namespace pool

namespace memory {

using pool::shared;
using pool::ThreadPool;

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
  for (auto& cache : shared.head)
    for (pool::FreeBlock*& head : cache)
      while (pool::FreeBlock* block = head) {
        pool::unpoison(block, sizeof(pool::FreeBlock));
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
