#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/part.h"

namespace everyo::data {

/// Threads that make batches in the background and give them back in the order in which they were asked for. One thread
/// at a time calls the functions. Destruction ends what is being made at its next sample.
class Workers {
 public:
  using Make = std::function<Batch(const Part&, const Cancelled&)>;
  /// Throws Error (backend) when the system has no more threads.
  Workers(int threads, Make make);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void ask(Part part);
  /// The batch asked for first, once it is made; or what was thrown in making it.
  Batch take();
  /// Gives up all that was asked for.
  void forget() noexcept;
  /// Batches asked for and not taken.
  [[nodiscard]] std::size_t asked() const noexcept { return slots_.size(); }
  /// What was asked for first.
  [[nodiscard]] const Part& oldest() const noexcept { return slots_.front()->part; }
  /// Whether the threads are of this process: a forked child has none.
  [[nodiscard]] bool here() const noexcept;

 private:
  struct Slot {
    Part part;
    Cancelled cancelled{false};
    bool done = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work(const std::stop_token& stop);

  Make make_;
  pid_t process_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Slot>> slots_;    // asked for and not taken; changed by the caller only
  std::deque<std::shared_ptr<Slot>> waiting_;  // of these, those nobody has begun
  std::vector<std::jthread> threads_;          // last: they end before the rest goes
};

}  // namespace everyo::data
