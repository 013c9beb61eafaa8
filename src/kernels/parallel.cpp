#include "kernels/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <span>

#include "everyo/context.h"
#include "kernels/team.h"

namespace everyo::kernels {
namespace {

constinit thread_local bool inside = false;

// The blocks of one thread's run that nobody has taken.
struct alignas(64) Run {
  std::atomic<std::int64_t> next;
  std::int64_t end;
};

// One parallel region. Thread t begins with the t-th run of consecutive blocks, whose data an earlier region left in
// its cache, and then takes blocks of the others' runs: a thread that another program keeps off its processor holds up
// one block, not a whole run.
struct Region {
  std::int64_t count, grain;
  int threads;
  BlockBody body;
  const Context& caller;  // of a copy: the body may change the caller's while a worker takes it over
  std::span<Run> runs;
  std::mutex mutex;
  std::exception_ptr error;
  std::int64_t error_block = 0;

  void run(int thread) {
    for (int i = 0; i < threads; ++i) {
      Run& from = runs[static_cast<std::size_t>((thread + i) % threads)];
      for (;;) {
        const std::int64_t block = from.next.fetch_add(1, std::memory_order_relaxed);
        if (block >= from.end) break;
        run_block(block);
      }
    }
  }
  void run_block(std::int64_t block) noexcept {
    try {
      body(block * grain, std::min(count, (block + 1) * grain));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (error && error_block < block) return;
      error = std::current_exception();
      error_block = block;
    }
  }
  void run_guarded(int thread) noexcept {
    inside = true;
    if (thread == 0) {
      const Scoped<&Context::team> together(caller.team);
      run(thread);
    } else {
      const ContextScope scope(caller);
      run(thread);
    }
    inside = false;  // a region is never started inside one
  }
};

}  // namespace

bool in_parallel() noexcept { return inside; }

int max_threads() noexcept {
  if (in_parallel()) return 1;
  const int limit = context().threads;
  if (limit <= 0) return team::available();
  return std::min(limit, std::max(team::available(), ThreadLimit::most));
}

void parallel_blocks(std::int64_t count, std::int64_t grain, BlockBody body) {
  const std::int64_t blocks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>({blocks, max_threads(), team::most_threads}));
  if (threads <= 1) {
    for (std::int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(count, begin + grain));
    return;
  }
  Context caller = context();
  caller.team = static_cast<std::int16_t>(threads);
  alignas(Run) std::array<std::byte, sizeof(Run) * team::most_threads> room;  // NOLINT: written as far as it is used
  Run* const runs = reinterpret_cast<Run*>(room.data());
  for (int t = 0; t < threads; ++t) new (runs + t) Run{blocks * t / threads, blocks * (t + 1) / threads};
  Region region{count, grain, threads, body, caller, std::span(runs, static_cast<std::size_t>(threads)), {}, nullptr};
  team::run(
      threads, [](void* data, int thread) noexcept { static_cast<Region*>(data)->run_guarded(thread); }, &region);
  if (region.error) std::rethrow_exception(region.error);
}

OpenMPThreads::OpenMPThreads(int threads) noexcept : old_(team::set_openmp_threads(threads)) {}
OpenMPThreads::~OpenMPThreads() { team::set_openmp_threads(old_); }

}  // namespace everyo::kernels
