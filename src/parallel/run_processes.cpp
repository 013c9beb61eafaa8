#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "everyo/context.h"
#include "everyo/logging.h"
#include "parallel/children.h"
#include "parallel/process_group.h"

namespace everyo::inline v1 {
namespace {

using parallel::Child, parallel::SharedWorld;

void write_all(int pipe, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = write(pipe, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return;  // the parent is gone
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// A forked rank's whole life.
[[noreturn]] void live(const std::shared_ptr<SharedWorld>& world, int rank, int pipe, int threads,
                       const std::function<std::string(ProcessGroup&)>& worker, Timeout timeout) {
  std::signal(SIGPIPE, SIG_IGN);
  std::string said;
  try {
    const ThreadLimit limit(threads);
    const std::unique_ptr<ProcessGroup> group = join(world, rank, timeout);
    said = parallel::said_result + worker(*group);
  } catch (...) {
    const std::string problem = parallel::describe(std::current_exception());
    world->fail(rank, fmt::format("rank {} raised {}", rank, problem));
    said = parallel::said_problem + problem;
  }
  write_all(pipe, said);
  std::fflush(nullptr);
  parallel::end_child(0);
}

// A launched rank finds its group by this: descriptor:rank:timeout.
constexpr std::string_view group_variable = "EVERYO_GROUP", threads_variable = "OMP_NUM_THREADS";

// What a launched rank is given; made before the fork, after which nothing may be allocated.
class Program {
 public:
  Program(const std::vector<std::string>& command, int descriptor, int rank, int threads, Timeout timeout)
      : words_(command) {
    for (char** variable = environ; *variable != nullptr; ++variable)
      if (!std::string_view(*variable).starts_with(fmt::format("{}=", group_variable)))
        variables_.emplace_back(*variable);
    variables_.push_back(fmt::format("{}={}:{}:{}", group_variable, descriptor, rank, timeout.count()));
    if (std::getenv(threads_variable.data()) == nullptr)
      variables_.push_back(fmt::format("{}={}", threads_variable, threads));
    for (std::string& word : words_) arguments_.push_back(word.data());
    arguments_.push_back(nullptr);
    for (std::string& variable : variables_) environment_.push_back(variable.data());
    environment_.push_back(nullptr);
  }
  // The reason why it cannot be run goes into the pipe.
  [[noreturn]] void become(int descriptor, int pipe) noexcept {
    fcntl(descriptor, F_SETFD, 0);  // it stays open
    execvpe(arguments_[0], arguments_.data(), environment_.data());
    const char why[] = {parallel::said_problem, '\0'};
    write_all(pipe, why);
    write_all(pipe, std::strerror(errno));
    parallel::end_child(127);
  }

 private:
  std::vector<std::string> words_, variables_;
  std::vector<char*> arguments_, environment_;
};

}  // namespace

std::vector<std::string> run_processes(int world_size, const std::function<std::string(ProcessGroup&)>& worker,
                                       const SpawnOptions& options) {
  check_world("run_processes", world_size, options);
  const auto world = SharedWorld::make(world_size, false);
  std::fflush(nullptr);  // or children would write what is buffered here once more
  const int parent = getpid(), threads = threads_of_rank(world_size, options);
  std::vector<Child> children;
  children.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank)
    children.emplace_back([&](int pipe) {
      parallel::die_with_parent(parent);
      live(world, rank, pipe, threads, worker, options.timeout);
    });
  return results_of("run_processes", *world, parallel::watch(children, *world, options.timeout, false));
}

int launch(int world_size, const std::vector<std::string>& command, const SpawnOptions& options) {
  check_world("launch", world_size, options);
  if (command.empty()) throw ValueError("[launch] no program is given; name one, as in: everyo launch -n 2 -- program");
  const auto world = SharedWorld::make(world_size, false);
  std::fflush(nullptr);
  const int parent = getpid(), threads = threads_of_rank(world_size, options);
  std::vector<Child> children;
  children.reserve(static_cast<std::size_t>(world_size));
  const int descriptor = world->file()->descriptor();
  for (int rank = 0; rank < world_size; ++rank) {
    Program program(command, descriptor, rank, threads, options.timeout);
    children.emplace_back([&](int pipe) {
      parallel::die_with_parent(parent);
      program.become(descriptor, pipe);
    });
  }
  const std::vector<parallel::Outcome> outcomes = parallel::watch(children, *world, Timeout::max(), true);
  for (const parallel::Outcome& outcome : outcomes)
    if (!outcome.said.empty())
      throw FileError(fmt::format("[launch] cannot run '{}': {}", command[0], outcome.said), ErrorKind::file_not_found);
  const int blamed = world->failed_rank();
  if (blamed >= 0 && outcomes[static_cast<std::size_t>(blamed)].status != 0)
    return outcomes[static_cast<std::size_t>(blamed)].status;
  for (const parallel::Outcome& outcome : outcomes)
    if (outcome.status != 0) return outcome.status;
  return 0;
}

std::unique_ptr<ProcessGroup> init_process_group() {
  const char* const text = std::getenv(group_variable.data());
  if (text == nullptr) return single_process_group();
  int descriptor = -1, rank = -1;
  double timeout = 0;
  const char *const end = text + std::strlen(text), *at = text;
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    const bool good = error == std::errc() && (next == end || *next == ':');
    at = next == end ? end : next + 1;
    return good;
  };
  if (!number(descriptor) || !number(rank) || !number(timeout) || at != end || !(timeout > 0))
    throw ValueError(
        fmt::format("[init_process_group] {} is '{}'; 'everyo launch' sets it, so leave it alone, or unset "
                    "it for a run of one process",
                    group_variable, text),
        ErrorKind::distributed);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return join(SharedWorld::open(std::make_shared<parallel::MemoryFile>(descriptor)), rank, Timeout(timeout));
}

}  // namespace everyo::inline v1
