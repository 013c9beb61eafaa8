#include "kernels/team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

// libgomp's own entry points, declared here so that neither compiler needs -fopenmp (clang's would bring a second
// OpenMP run-time). No region of it ever has more than one thread here.
extern "C" {
void omp_set_num_threads(int) noexcept;
int omp_get_max_threads() noexcept;
}

namespace everyo::kernels::team {
namespace {

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Who waits spins for so many pauses (some ten microseconds) before it sleeps. Longer costs more than it saves as soon
// as another program wants the processor: libgomp's three milliseconds made training twenty times slower there.
constexpr int spins = 4000;

// One region at a time. The state says which one, whether it still takes workers, and how many it has taken.
class Pool {
 public:
  void run(int threads, void (*call)(void*, int) noexcept, void* data) noexcept {
    if (busy_.exchange(true, std::memory_order_acquire)) return call(data, 0);
    start_workers(threads - 1);
    call_ = call;
    data_ = data;
    wanted_.store(threads - 1, std::memory_order_relaxed);
    left_.store(0, std::memory_order_relaxed);
    const std::uint64_t region = (state_.load(std::memory_order_relaxed) & ~(next_region - 1)) + next_region;
    state_.store(region | open, std::memory_order_release);
    signal_.fetch_add(1, std::memory_order_release);
    signal_.notify_all();
    call(data, 0);
    const std::uint64_t closed = state_.fetch_and(~open, std::memory_order_acq_rel);
    const auto joined = static_cast<std::uint32_t>(closed & joined_mask);
    for (int i = 0; i < spins && left_.load(std::memory_order_acquire) != joined; ++i) pause();
    for (std::uint32_t left = left_.load(std::memory_order_acquire); left != joined;
         left = left_.load(std::memory_order_acquire))
      left_.wait(left, std::memory_order_acquire);
    busy_.store(false, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t joined_mask = 0xffff, open = 0x10000, next_region = 0x20000;

  void start_workers(int count) noexcept {
    for (; workers_ < count; ++workers_) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (...) {
        return;  // the system gives no more threads: fewer do the work
      }
    }
  }

  [[noreturn]] void work() noexcept {
    std::uint64_t last = 0;  // the region this worker was in
    for (;;) {
      const std::uint32_t signal = signal_.load(std::memory_order_acquire);
      bool joined = false;
      for (int i = 0; i < spins && !joined; ++i) {
        joined = join(last);
        if (!joined) pause();
      }
      if (!joined) signal_.wait(signal, std::memory_order_acquire);
    }
  }

  // Takes part in the open region, once.
  bool join(std::uint64_t& last) noexcept {
    std::uint64_t state = state_.load(std::memory_order_acquire);
    const std::uint64_t region = state & ~(next_region - 1);
    if ((state & open) == 0 || region == last) return false;
    last = region;
    do {
      if ((state & open) == 0 || (state & ~(next_region - 1)) != region) return false;
      if (static_cast<int>(state & joined_mask) >= wanted_.load(std::memory_order_relaxed)) return false;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    call_(data_, static_cast<int>(state & joined_mask) + 1);
    left_.fetch_add(1, std::memory_order_release);
    left_.notify_one();
    return true;
  }

  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> signal_{0};
  alignas(64) std::atomic<std::uint32_t> left_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<int> wanted_{0};
  void (*call_)(void*, int) noexcept = nullptr;
  void* data_ = nullptr;
  int workers_ = 0;
};

// Never destroyed: its workers wait in it until the process ends.
alignas(Pool) constinit std::byte memory[sizeof(Pool)]{};
constinit std::atomic<Pool*> the_pool{nullptr};

Pool& pool() noexcept {
  if (Pool* const there = the_pool.load(std::memory_order_acquire)) [[likely]]
    return *there;
  // Not std::call_once, which uses thread-locals of libstdc++: a process that loads us late may have no room for them.
  [[maybe_unused]] static const bool made = [] {
    // A forked child has no workers. It begins with a new pool, in the same place: a region that the fork interrupted
    // finds that nobody joined it.
    pthread_atfork(nullptr, nullptr, [] { the_pool.store(new (memory) Pool, std::memory_order_release); });
    the_pool.store(new (memory) Pool, std::memory_order_release);
    return true;
  }();
  return *the_pool.load(std::memory_order_acquire);
}

}  // namespace

void run(int threads, void (*call)(void*, int) noexcept, void* data) noexcept {
  pool().run(std::min(threads, most_threads), call, data);
}

int available() noexcept {
  static const int count = std::clamp(omp_get_max_threads(), 1, most_threads);
  return count;
}

int set_openmp_threads(int threads) noexcept {
  available();  // before the count it reads is changed
  const int old = omp_get_max_threads();
  if (threads != old) omp_set_num_threads(threads);
  return old;
}

}  // namespace everyo::kernels::team
