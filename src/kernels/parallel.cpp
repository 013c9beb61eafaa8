#include "kernels/parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "everyo/context.h"
#include "kernels/team.h"

namespace everyo::kernels {
namespace {

constinit thread_local bool inside = false;

// One parallel region: thread t of `threads` runs the t-th run of consecutive blocks.
struct Region {
  std::int64_t count, grain, blocks;
  int threads;
  BlockBody body;
  const Context caller;  // a copy: the body may change the caller's while a worker takes it over
  std::mutex mutex;
  std::exception_ptr error;
  int error_thread = 0;

  void run(int thread) {
    const std::int64_t first = blocks * thread / threads, last = blocks * (thread + 1) / threads;
    for (std::int64_t block = first; block < last; ++block) {
      body(block * grain, std::min(count, (block + 1) * grain));
    }
  }
  void run_guarded(int thread) noexcept {
    inside = true;
    try {
      if (thread == 0) {
        run(thread);
      } else {
        const ContextScope scope(caller);
        run(thread);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error || thread < error_thread) {
        error = std::current_exception();
        error_thread = thread;
      }
    }
    inside = false;  // a region is never started inside one
  }
};

}  // namespace

bool in_parallel() noexcept { return inside || team::in_parallel(); }

int max_threads() noexcept {
  if (in_parallel()) return 1;
  const int limit = context().threads;
  if (limit <= 0) return team::available();
  return std::min(limit, std::max(team::available(), ThreadLimit::most));
}

int library_threads() noexcept { return team::granted(max_threads()); }

void parallel_blocks(std::int64_t count, std::int64_t grain, BlockBody body) {
  const std::int64_t blocks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(blocks, max_threads()));
  if (threads <= 1) {
    for (std::int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(count, begin + grain));
    return;
  }
  Region region{count, grain, blocks, threads, body, context(), {}, nullptr};
  team::run(
      threads, [](void* data, int thread) noexcept { static_cast<Region*>(data)->run_guarded(thread); }, &region);
  if (region.error) std::rethrow_exception(region.error);
}

OpenMPThreads::OpenMPThreads(int threads) noexcept : old_(team::set_openmp_threads(threads)) {}
OpenMPThreads::~OpenMPThreads() { team::set_openmp_threads(old_); }

}  // namespace everyo::kernels
