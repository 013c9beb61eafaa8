#pragma once

// The library's one pool of threads, below parallel_for. Nothing else starts threads for kernels: oneDNN runs its
// primitives on one thread each, inside blocks of a parallel_for.
namespace everyo::kernels::team {

/// Most threads of one region.
inline constexpr int most_threads = 256;

/// Runs call(data, 0) on the caller and offers call(data, 1) … call(data, threads - 1) to the pool's workers; returns
/// when every call that began has ended. A worker that is not there in time (asleep, or without a processor) takes no
/// part, and a caller that finds the pool at another's work is alone: each call must be able to do all that is left.
void run(int threads, void (*call)(void* data, int thread) noexcept, void* data) noexcept;

/// Threads the environment (OMP_NUM_THREADS) and the affinity mask allow.
int available() noexcept;

/// Sets OpenMP's thread count for this thread's next regions; returns the count before.
int set_openmp_threads(int threads) noexcept;

}  // namespace everyo::kernels::team
