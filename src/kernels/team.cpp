#include "kernels/team.h"

#include <pthread.h>

#include <algorithm>
#include <limits>

// libgomp's own entry points, declared here so that both compilers share one pool and neither needs -fopenmp (clang's
// would bring a second OpenMP run-time).
extern "C" {
void omp_set_num_threads(int) noexcept;
int omp_get_max_threads() noexcept;
#ifndef EVERYO_OWN_POOL
void GOMP_parallel(void (*call)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num() noexcept;
int omp_get_num_threads() noexcept;
int omp_in_parallel() noexcept;
int omp_get_dynamic() noexcept;
int omp_get_thread_limit() noexcept;
int omp_get_max_active_levels() noexcept;
int omp_pause_resource_all(int kind) noexcept;
#endif
}

#ifndef EVERYO_OWN_POOL

namespace everyo::kernels::team {
namespace {

constexpr int pause_soft = 1;       // omp_pause_soft
constexpr int most_threads = 1024;  // libgomp dies of an OMP_NUM_THREADS that the system cannot start

// A forked child has no workers, yet libgomp would wait for them. Pausing the forking thread's pool before the fork
// makes parent and child start a new one when they next need it.
void guard_fork() noexcept {
  static const bool installed = [] {
    return pthread_atfork([] { omp_pause_resource_all(pause_soft); }, nullptr, nullptr) == 0;
  }();
  static_cast<void>(installed);
}

struct Team {
  int threads;
  void (*call)(void*, int) noexcept;
  void* data;
};

}  // namespace

void run(int threads, void (*call)(void*, int) noexcept, void* data) {
  guard_fork();
  Team team{threads, call, data};
  GOMP_parallel(
      [](void* p) {
        const Team& t = *static_cast<Team*>(p);
        const int granted = omp_get_num_threads();  // may be fewer: OMP_THREAD_LIMIT, OMP_DYNAMIC
        for (int thread = omp_get_thread_num(); thread < t.threads; thread += granted) t.call(t.data, thread);
      },
      &team, static_cast<unsigned>(threads), 0);
}

bool in_parallel() noexcept { return omp_in_parallel() != 0; }

int available() noexcept { return std::min(omp_get_max_threads(), most_threads); }

int granted(int threads) noexcept {
  const bool all = omp_get_dynamic() == 0 && omp_get_thread_limit() == std::numeric_limits<int>::max() &&
                   omp_get_max_active_levels() > 0;
  return all ? threads : 1;
}

int set_openmp_threads(int threads) noexcept {
  if (threads > 1) guard_fork();
  const int old = omp_get_max_threads();
  if (threads != old) omp_set_num_threads(threads);
  return old;
}

}  // namespace everyo::kernels::team

#else

#include <sched.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace everyo::kernels::team {
namespace {

constinit thread_local bool worker = false;

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { pause(); }

  void run(int threads, void (*call)(void*, int) noexcept, void* data) {
    const std::lock_guard one_region(region_mutex_);
    {
      const std::lock_guard lock(mutex_);
      while (static_cast<int>(workers_.size()) < threads - 1) {
        const int index = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, index, seen = region_] { work(index, seen); });
      }
      call_ = call;
      data_ = data;
      threads_ = threads;
      running_ = threads - 1;
      ++region_;
    }
    started_.notify_all();
    call(data, 0);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return running_ == 0; });
  }

  // Ends all workers; the next run starts new ones. Before a fork, so that the child waits for nobody.
  void pause() {
    const std::lock_guard one_region(region_mutex_);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    started_.notify_all();
    for (std::thread& thread : workers_) thread.join();
    workers_.clear();
    stop_ = false;
  }

 private:
  void work(int index, unsigned long seen) {
    worker = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      started_.wait(lock, [&] { return stop_ || region_ != seen; });
      if (stop_) return;
      seen = region_;
      if (index >= threads_) continue;
      lock.unlock();
      call_(data_, index);
      lock.lock();
      if (--running_ == 0) finished_.notify_one();
    }
  }

  std::mutex region_mutex_, mutex_;
  std::condition_variable started_, finished_;
  std::vector<std::thread> workers_;
  void (*call_)(void*, int) noexcept = nullptr;
  void* data_ = nullptr;
  int threads_ = 0, running_ = 0;
  unsigned long region_ = 0;
  bool stop_ = false;
};

Pool& pool() {
  static Pool the;
  static const bool guarded = pthread_atfork(
                                  [] {
                                    if (!worker) pool().pause();
                                  },
                                  nullptr, nullptr) == 0;
  static_cast<void>(guarded);
  return the;
}

}  // namespace

void run(int threads, void (*call)(void*, int) noexcept, void* data) { pool().run(threads, call, data); }

bool in_parallel() noexcept { return worker; }

int available() noexcept {
  static const int count = omp_get_max_threads();  // read before set_openmp_threads changes it
  return count;
}

int granted(int) noexcept { return 1; }

int set_openmp_threads(int) noexcept {
  available();
  omp_set_num_threads(1);  // libgomp's pool is not to be used beside this one
  return 1;
}

}  // namespace everyo::kernels::team
#endif
