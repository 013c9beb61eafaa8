#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "everyo/parallel.h"
#include "parallel/shared_transport.h"

namespace everyo::inline v1 {

/// Runs calls one after the other on a thread of its own, which the first of them starts.
class CallQueue {
 public:
  ~CallQueue();
  void push(std::function<void()> call);
  /// Nothing is waiting or running.
  [[nodiscard]] bool idle();
  /// Returns once nothing is.
  void drain();

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool running_ = false, ending_ = false;
  std::thread thread_;
};

struct ProcessGroup::Parts {
  std::unique_ptr<parallel::SharedTransport> transport;  // null: a world of one
  std::uint64_t sequence = 0;                            // of collectives
  std::vector<std::uint64_t> sent{}, received{};         // messages of each pair
  std::atomic<int> under_way{0};                         // calls whose Work is not done
  CallQueue queue{};
};

/// Throws ValueError for a weight of a mean that is neither 0 nor from 1e-30 to 1e30.
void check_weight(std::string_view function, double weight);

/// The group of one rank of a world.
std::unique_ptr<ProcessGroup> join(std::shared_ptr<parallel::SharedWorld> world, int rank, Timeout timeout);

}  // namespace everyo::inline v1
