#pragma once

// The pool of threads below parallel_for: libgomp's, which oneDNN uses too, or with EVERYO_OWN_POOL a small one of
// std::thread, which the thread sanitizer can follow.
namespace everyo::kernels::team {

/// Runs call(data, t) for t in 0..threads-1, t 0 on the caller; returns when all are done.
void run(int threads, void (*call)(void* data, int thread) noexcept, void* data);

/// Inside a region of the pool, also one that another library started.
bool in_parallel() noexcept;

/// Threads the environment and the affinity mask allow.
int available() noexcept;

/// Threads, at most `threads`, that a region another library starts is sure to get: 1 when OpenMP may grant fewer than
/// were asked for (OMP_THREAD_LIMIT, OMP_DYNAMIC, OMP_MAX_ACTIVE_LEVELS).
int granted(int threads) noexcept;

/// Sets OpenMP's thread count for this thread's next regions; returns the count before. With the own pool: always 1.
int set_openmp_threads(int threads) noexcept;

}  // namespace everyo::kernels::team
