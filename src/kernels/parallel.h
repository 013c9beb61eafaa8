#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

// The only door to threads. Work is cut in blocks fixed by the problem, never by the number of threads, so that
// whatever a body computes per block (a partial sum, a chunk of rows) is the same for any thread count.
namespace everyo::kernels {

/// Threads that parallel_for may use here: 1 inside a parallel region, else Context::threads, else what OpenMP offers
/// (OMP_NUM_THREADS, the affinity mask).
int max_threads() noexcept;

/// True in the body of a parallel_for that runs on several threads.
bool in_parallel() noexcept;

/// A callable body(begin, end), borrowed for one call.
class BlockBody {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, BlockBody>) BlockBody(F& body)
  noexcept  // NOLINT(google-explicit-constructor): a reference, as std::function_ref will be
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, std::int64_t begin, std::int64_t end) { (*static_cast<F*>(object))(begin, end); }) {}
  void operator()(std::int64_t begin, std::int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t);
};

/// As parallel_for, for a count above the grain.
void parallel_blocks(std::int64_t count, std::int64_t grain, BlockBody body);

/// Calls body(begin, end) for [0, count) cut in blocks of exactly `grain` (the last may be shorter); block i is
/// begin / grain. One block runs at once on the caller, without any overhead; with one thread, or inside another
/// parallel_for, all blocks run on the caller in order. Which thread runs a block is left open: blocks may not wait for
/// each other. Workers run under the caller's Context. Of what bodies throw, the lowest block's exception leaves the
/// call, on the caller's thread, after all blocks have run.
template <class F>
void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
  if (count <= grain) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  parallel_blocks(count, grain, BlockBody(body));
}

/// For a library that starts OpenMP regions by itself (oneDNN): its regions have `threads` threads in this scope.
class [[nodiscard]] OpenMPThreads {
 public:
  explicit OpenMPThreads(int threads) noexcept;
  ~OpenMPThreads();
  OpenMPThreads(const OpenMPThreads&) = delete;
  OpenMPThreads& operator=(const OpenMPThreads&) = delete;

 private:
  int old_;
};

}  // namespace everyo::kernels
