#include "parallel/children.h"

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
#include <cstring>
#include <utility>

namespace everyo::parallel {
namespace {

constexpr std::chrono::seconds grace{2};
constexpr std::chrono::milliseconds between_looks{20};

// Closes at the end of a scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

[[noreturn]] void refuse(std::string_view what) {
  throw Error(fmt::format("[run_processes] no {}: {}", what, std::strerror(errno)), ErrorKind::distributed);
}

}  // namespace

Child::Child(const std::function<void(int)>& life, const std::function<int()>& fork) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) refuse("pipe");
  Descriptor from{ends[0]}, to{ends[1]};
  process_ = fork ? fork() : ::fork();
  if (process_ < 0) refuse("process");
  if (process_ == 0) {
    life(to.value);
    end_child(127);
  }
  fcntl(from.value, F_SETFL, O_NONBLOCK);
  pipe_ = std::exchange(from.value, -1);
}
Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      stopped_(other.stopped_),
      ended_stopped_(other.ended_stopped_),
      said_(std::move(other.said_)) {}
Child::~Child() {
  if (process_ >= 0) {
    end();
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (pipe_ >= 0) close(pipe_);
}

void Child::end() noexcept {
  ended_stopped_ = ended_stopped_ || stopped();
  kill(process_, SIGKILL);
}

void Child::listen() {
  std::array<char, 1 << 16> buffer;
  for (ssize_t n = 0; (n = read(pipe_, buffer.data(), buffer.size())) > 0;)
    said_.append(buffer.data(), static_cast<std::size_t>(n));
}

bool Child::reap(Outcome& outcome, bool silent) {
  int status = 0;
  const int ended = waitpid(process_, &status, WNOHANG);
  const bool taken = ended < 0 && errno == ECHILD;  // its status went to another's wait, or SIGCHLD is ignored
  if (ended != process_ && !taken) return false;
  process_ = -1;
  listen();
  const bool well = taken ? said_.starts_with(said_result) : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  outcome.status = taken ? well ? 0 : 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (well && silent) {
    outcome.done = true;
  } else if (silent && !said_.empty()) {
    outcome.problem = outcome.said = said_.substr(1);
  } else if (well && said_.starts_with(said_result)) {
    outcome.done = true;
    outcome.result = said_.substr(1);
  } else if (said_.starts_with(said_problem)) {
    const std::size_t end = std::min(said_.find('\0'), said_.size());
    outcome.problem = said_.substr(1, end - 1);
    outcome.details = said_.substr(std::min(end + 1, said_.size()));
  } else if (ended_stopped_) {
    outcome.problem = "the process was stopped, and did not go on";
  } else if (taken) {
    outcome.problem =
        "the process ended, and its exit status is not known; leave SIGCHLD at its default, and wait for no process of "
        "the library";
  } else if (WIFSIGNALED(status)) {
    outcome.problem =
        fmt::format("the process was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    outcome.problem = fmt::format("the process exited with status {}{}", WEXITSTATUS(status),
                                  silent ? "" : " before its worker returned");
  }
  return true;
}

std::vector<Outcome> watch(std::vector<Child>& children, SharedWorld& world, Timeout timeout, bool silent,
                           const std::function<void()>& look) {
  std::vector<Outcome> outcomes(children.size());
  const auto began = Clock::now();
  auto failed_at = Clock::time_point::max();
  std::vector<pollfd> pipes;
  while (std::ranges::any_of(children, &Child::running)) {
    pipes.clear();
    for (const Child& child : children)
      if (child.running() && !silent) pipes.push_back({.fd = child.pipe(), .events = POLLIN, .revents = 0});
    poll(pipes.data(), pipes.size(), static_cast<int>(between_looks.count()));
    for (std::size_t r = 0; r < children.size(); ++r) {
      Child& child = children[r];
      if (!child.running()) continue;
      child.listen();
      const int rank = static_cast<int>(r);
      if (child.reap(outcomes[r], silent)) {
        if (!outcomes[r].done) world.fail(rank, fmt::format("rank {}: {}", rank, outcomes[r].problem));
      } else if (child.look_whether_stopped()) {
        fail_as_stopped(world, rank, child.process());
      }
    }
    const auto now = Clock::now();
    if (now - began > timeout) fail_as_too_long(world, timeout);
    if (world.failed()) failed_at = std::min(failed_at, now);
    // A stopped rank cannot end by itself.
    const bool only_stopped =
        std::ranges::none_of(children, [](const Child& child) { return child.running() && !child.stopped(); });
    if (failed_at != Clock::time_point::max() && (only_stopped || now - failed_at > grace))
      for (Child& child : children)
        if (child.running()) child.end();
    if (look) look();
  }
  return outcomes;
}

std::string problem_said(std::string_view what, std::string_view details) {
  return fmt::format("{}{}{}{}", said_problem, what, '\0', details);
}

void write_all(int pipe, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = write(pipe, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return;  // the parent is gone
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void end_child(int status) noexcept { _exit(status); }

void die_with_parent(int parent) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) end_child(1);
}

}  // namespace everyo::parallel
