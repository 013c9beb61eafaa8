#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/process_state.h"
#include "parallel/shared_world.h"
#include "parallel/spawn.h"

namespace everyo::parallel {

/// One rank's process, and what it says through a pipe: 'r' and its result, or 'x', its problem, a zero
/// byte and details.
class Child {
 public:
  /// Forks, by `fork` where given; the child runs `life` with its end of the pipe, and must not return from it. Throws
  /// Error (distributed) when the system has no room for it.
  explicit Child(const std::function<void(int pipe)>& life, const std::function<int()>& fork = {});
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  /// Kills the process if it still runs.
  ~Child();

  [[nodiscard]] bool running() const noexcept { return process_ >= 0; }
  [[nodiscard]] int process() const noexcept { return process_; }
  [[nodiscard]] int pipe() const noexcept { return pipe_; }
  /// One look; whether it counts as lost now.
  bool look_whether_stopped() { return stopped_.add(process_state(process_)); }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.lost(); }
  void end() noexcept;
  /// Takes what it has said by now.
  void listen();
  /// If it has ended, what came of it. With `silent`, an exit with status 0 is a good end.
  bool reap(Outcome& outcome, bool silent);

 private:
  int process_ = -1, pipe_ = -1;
  StoppedLooks stopped_;
  bool ended_stopped_ = false;
  std::string said_;
};

/// Waits for all of them. The first one that fails, is stopped, or makes the run last longer than `timeout` ends the
/// world for the others, which then have two seconds to end by themselves. Throws what `look`, called at each turn,
/// throws.
std::vector<Outcome> watch(std::vector<Child>& children, SharedWorld& world, Timeout timeout, bool silent,
                           const std::function<void()>& look);

/// What a child says of a problem.
std::string problem_said(std::string_view what, std::string_view details);
/// As far as there is a reader.
void write_all(int pipe, std::string_view bytes) noexcept;

/// In a child: ends it, without what its parent would do at its own end.
[[noreturn]] void end_child(int status) noexcept;
/// In a child: it ends when its parent does.
void die_with_parent(int parent) noexcept;

}  // namespace everyo::parallel
