#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "everyo/context.h"
#include "parallel/process_group.h"
#include "parallel/spawn.h"

namespace everyo {
namespace parallel {
namespace {

constexpr char returned = 'r', raised = 'x';
// What is left of a run that failed has so long to end by itself.
constexpr std::chrono::seconds grace{2};
constexpr std::chrono::milliseconds between_looks{20};

void write_all(int pipe, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = write(pipe, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return;  // the parent is gone
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// The child's whole life.
[[noreturn]] void live(const std::shared_ptr<SharedWorld>& world, int rank, int pipe, int parent, int threads,
                       const std::function<std::string(ProcessGroup&)>& worker, Timeout timeout) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  std::signal(SIGPIPE, SIG_IGN);
  std::string said;
  try {
    const ThreadLimit limit(threads);
    const std::unique_ptr<ProcessGroup> group = join(world, rank, timeout);
    said = returned + worker(*group);
  } catch (...) {
    const std::string problem = describe(std::current_exception());
    world->fail(rank, fmt::format("rank {} raised {}", rank, problem));
    said = raised + problem;
  }
  write_all(pipe, said);
  std::fflush(nullptr);
  _exit(0);
}

class Child {
 public:
  Child(int process, int pipe) noexcept : process_(process), pipe_(pipe) {}
  Child(Child&& other) noexcept
      : process_(std::exchange(other.process_, -1)),
        pipe_(std::exchange(other.pipe_, -1)),
        said_(std::move(other.said_)) {}
  Child& operator=(Child&&) = delete;
  // No process is left, whatever happened.
  ~Child() {
    if (process_ >= 0) {
      kill(process_, SIGKILL);
      while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (pipe_ >= 0) close(pipe_);
  }
  [[nodiscard]] bool running() const noexcept { return process_ >= 0; }
  [[nodiscard]] int pipe() const noexcept { return pipe_; }
  [[nodiscard]] int process() const noexcept { return process_; }
  // Counts the looks at which it is stopped; whether they are so many that it counts as lost.
  bool look_whether_stopped() {
    const char state = process_state(process_);
    stopped_looks_ = state == 'T' || state == 't' ? stopped_looks_ + 1 : 0;
    return stopped();
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_looks_ > most_stopped; }
  void end() noexcept {
    kill(process_, SIGKILL);
    kill(process_, SIGCONT);
  }

  // Takes what the child has said by now.
  void read_pipe() {
    std::array<char, 1 << 16> buffer;
    for (ssize_t n = 0; (n = read(pipe_, buffer.data(), buffer.size())) > 0;)
      said_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  // Has it ended? Then what came of it.
  bool reap(Outcome& outcome) {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) != process_) return false;
    process_ = -1;
    read_pipe();
    if (!said_.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      outcome.done = said_[0] == returned;
      outcome.failed = !outcome.done;
      (outcome.done ? outcome.result : outcome.problem) = said_.substr(1);
    } else {
      outcome.failed = true;
      outcome.problem =
          WIFSIGNALED(status)
              ? fmt::format("the process was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
              : fmt::format("the process exited with status {} before its worker returned", WEXITSTATUS(status));
    }
    return true;
  }

 private:
  int process_, pipe_;
  int stopped_looks_ = 0;
  std::string said_;
};

// Closes at the end of a scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

Child start(const std::function<void(int)>& life) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(fmt::format("[run_processes] no pipe: {}", std::strerror(errno)), ErrorKind::distributed);
  Descriptor from{ends[0]}, to{ends[1]};
  const int process = fork();
  if (process < 0)
    throw Error(fmt::format("[run_processes] no process: {}", std::strerror(errno)), ErrorKind::distributed);
  if (process == 0) life(to.value);
  fcntl(from.value, F_SETFL, O_NONBLOCK);
  return {process, std::exchange(from.value, -1)};
}

}  // namespace
}  // namespace parallel

inline namespace v1 {

std::vector<std::string> run_processes(int world_size, const std::function<std::string(ProcessGroup&)>& worker,
                                       const SpawnOptions& options) {
  using parallel::Child, parallel::Clock;
  check_world("run_processes", world_size, options);
  const auto world = parallel::SharedWorld::make(world_size, false);
  std::fflush(nullptr);  // or children would write what is buffered here once more
  const int parent = getpid(), threads = threads_of_rank(world_size, options);
  std::vector<Child> children;
  children.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank)
    children.push_back(parallel::start(
        [&](int pipe) { parallel::live(world, rank, pipe, parent, threads, worker, options.timeout); }));

  std::vector<parallel::Outcome> outcomes(children.size());
  const auto began = Clock::now();
  auto failed_at = Clock::time_point::max();
  std::vector<pollfd> pipes;
  while (std::ranges::any_of(children, &Child::running)) {
    pipes.clear();
    for (const Child& child : children)
      if (child.running()) pipes.push_back({.fd = child.pipe(), .events = POLLIN, .revents = 0});
    poll(pipes.data(), pipes.size(), static_cast<int>(parallel::between_looks.count()));
    for (std::size_t r = 0; r < children.size(); ++r) {
      Child& child = children[r];
      const int rank = static_cast<int>(r);
      if (!child.running()) continue;
      child.read_pipe();
      if (child.reap(outcomes[r])) {
        if (outcomes[r].failed) world->fail(rank, fmt::format("rank {}: {}", rank, outcomes[r].problem));
      } else if (child.look_whether_stopped()) {
        world->fail(
            rank, fmt::format("rank {} (process {}) is stopped; let it go on, or end the run", rank, child.process()));
      }
    }
    const auto now = Clock::now();
    if (now - began > options.timeout)
      world->fail(-1, fmt::format("the run took longer than {:g} s", options.timeout.count()));
    if (world->failed()) failed_at = std::min(failed_at, now);
    // A stopped rank cannot end by itself.
    const bool only_stopped =
        std::ranges::none_of(children, [](const Child& child) { return child.running() && !child.stopped(); });
    if (failed_at != Clock::time_point::max() && (only_stopped || now - failed_at > parallel::grace))
      for (Child& child : children)
        if (child.running()) child.end();
  }
  return results_of("run_processes", *world, std::move(outcomes));
}

}  // namespace v1
}  // namespace everyo
