#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "everyo/context.h"
#include "everyo/logging.h"
#include "parallel/children.h"
#include "parallel/process_group.h"

// Ranks that are programs of their own.
namespace everyo::inline v1 {
namespace {

using parallel::Child, parallel::SharedWorld;

// A launched rank finds its group by this: descriptor:rank:timeout; and one that is to give a result, by the next one,
// the descriptor of a pipe.
constexpr std::string_view group_variable = "EVERYO_GROUP", result_variable = "EVERYO_RESULT",
                           threads_variable = "OMP_NUM_THREADS";

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

// What a launched rank is given; made before the fork, after which nothing may be allocated.
class Program {
 public:
  Program(const std::vector<std::string>& command, int descriptor, int rank, int threads, const SpawnOptions& options)
      : words_(command), result_(fmt::format("{}={:16}", result_variable, ' ')) {
    std::vector<std::string_view> ours{group_variable, result_variable};
    variables_.push_back(fmt::format("{}={}:{}:{}", group_variable, descriptor, rank, options.timeout.count()));
    // What the caller says of threads goes before what the environment says, and that before a share.
    if (options.threads > 0 || std::getenv(threads_variable.data()) == nullptr) {
      ours.push_back(threads_variable);
      variables_.push_back(fmt::format("{}={}", threads_variable, threads));
    }
    for (char** variable = environ; *variable != nullptr; ++variable)
      if (std::ranges::find(ours, name_of(*variable)) == ours.end()) variables_.emplace_back(*variable);
    for (std::string& word : words_) arguments_.push_back(word.data());
    arguments_.push_back(nullptr);
    for (std::string& variable : variables_) environment_.push_back(variable.data());
    environment_.push_back(nullptr);
    environment_.reserve(environment_.size() + 1);
  }
  // The reason why it cannot be run goes into the pipe, and with `gives_result` what the program reports.
  [[noreturn]] void become(int descriptor, int pipe, bool gives_result) noexcept {
    fcntl(descriptor, F_SETFD, 0);  // it stays open
    if (gives_result) {
      fcntl(pipe, F_SETFD, 0);
      char* const number = result_.data() + result_variable.size() + 1;
      *std::to_chars(number, result_.data() + result_.size(), pipe).ptr = '\0';
      environment_.back() = result_.data();
      environment_.push_back(nullptr);  // there is room
    }
    execvpe(arguments_[0], arguments_.data(), environment_.data());
    const char why[] = {parallel::said_problem, '\0'};
    parallel::write_all(pipe, why);
    parallel::write_all(pipe, std::strerror(errno));
    parallel::end_child(127);
  }

 private:
  std::vector<std::string> words_, variables_;
  std::string result_;
  std::vector<char*> arguments_, environment_;
};

std::vector<Child> start(const std::shared_ptr<SharedWorld>& world, const std::vector<std::string>& command,
                         const SpawnOptions& options, bool gives_results) {
  std::fflush(nullptr);
  const int parent = getpid(), ranks = world->world_size(), threads = threads_of_rank(ranks, options);
  const int descriptor = world->file()->descriptor();
  std::vector<Child> children;
  children.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Program program(command, descriptor, rank, threads, options);
    children.emplace_back([&](int pipe) {
      parallel::die_with_parent(parent);
      program.become(descriptor, pipe, gives_results);
    });
  }
  return children;
}

void check_command(std::string_view name, const std::vector<std::string>& command) {
  if (command.empty())
    throw ValueError(fmt::format("[{}] no program is given; name one, as in: everyo launch -n 2 -- program", name));
}

// Where a result goes; closes at the end of a scope.
class ResultPipe {
 public:
  ResultPipe() {
    const char* const text = std::getenv(result_variable.data());
    if (text != nullptr) std::from_chars(text, text + std::strlen(text), descriptor_);
    if (fcntl(descriptor_, F_SETFD, FD_CLOEXEC) != 0)
      throw StateError("[report_result] nobody waits for a result; it is for programs that run_programs starts, once",
                       ErrorKind::distributed);
    unsetenv(result_variable.data());
  }
  ~ResultPipe() { close(descriptor_); }
  ResultPipe(const ResultPipe&) = delete;
  ResultPipe& operator=(const ResultPipe&) = delete;
  void write(std::string_view said) const noexcept { parallel::write_all(descriptor_, said); }

 private:
  int descriptor_ = -1;
};

}  // namespace

std::vector<std::string> run_programs(int world_size, const std::vector<std::string>& command,
                                      const SpawnOptions& options) {
  check_world("run_programs", world_size, options);
  check_command("run_programs", command);
  const auto world = SharedWorld::make(world_size, false);
  std::vector<Child> children = start(world, command, options, true);
  return results_of("run_programs", *world, parallel::watch(children, *world, options.timeout, false, options.look));
}

void report_result(std::string_view result) { ResultPipe().write(fmt::format("{}{}", parallel::said_result, result)); }
void report_problem(const WorkerError& problem) {
  ResultPipe().write(parallel::problem_said(problem.what(), problem.details()));
}

int launch(int world_size, const std::vector<std::string>& command, const SpawnOptions& options) {
  check_world("launch", world_size, options);
  check_command("launch", command);
  const auto world = SharedWorld::make(world_size, false);
  std::vector<Child> children = start(world, command, options, false);
  const std::vector<parallel::Outcome> outcomes = parallel::watch(children, *world, no_timeout, true, options.look);
  for (const parallel::Outcome& outcome : outcomes)
    if (!outcome.said.empty())
      throw FileError(fmt::format("[launch] cannot run '{}': {}", command[0], outcome.said), ErrorKind::file_not_found);
  const auto failed = [](const parallel::Outcome& outcome) { return outcome.status != 0; };
  const int blamed = world->failed_rank();
  const auto worst = blamed >= 0 && failed(outcomes[static_cast<std::size_t>(blamed)])
                         ? outcomes.begin() + blamed
                         : std::ranges::find_if(outcomes, failed);
  if (worst == outcomes.end()) return 0;
  log(LogLevel::error, fmt::format("[launch] rank {}: {}", worst - outcomes.begin(), worst->problem));
  return worst->status;
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
  // The descriptor stays open: it may be none of ours, or a group's that has its own copy.
  const auto world = SharedWorld::open(std::make_shared<parallel::MemoryFile>(descriptor));
  auto group = join(world, rank, Timeout(timeout));
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  context().rank = rank;
  return group;
}

}  // namespace everyo::inline v1
