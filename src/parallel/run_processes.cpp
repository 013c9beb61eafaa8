#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>

#include "everyo/context.h"
#include "parallel/children.h"
#include "parallel/process_group.h"

namespace everyo::inline v1 {
namespace {

using parallel::Child, parallel::SharedWorld;

// A forked rank's whole life.
[[noreturn]] void live(const std::shared_ptr<SharedWorld>& world, int rank, int pipe, int threads,
                       const std::function<std::string(ProcessGroup&)>& worker, Timeout timeout) {
  std::signal(SIGPIPE, SIG_IGN);
  std::string said;
  try {
    const Scoped<&Context::rank> draws(rank);
    const ThreadLimit limit(threads);
    const std::unique_ptr<ProcessGroup> group = join(world, rank, timeout);
    said = parallel::said_result + worker(*group);
  } catch (...) {
    const std::string problem = parallel::describe(std::current_exception());
    world->fail(rank, fmt::format("rank {} raised {}", rank, problem));
    said = parallel::problem_said(problem, parallel::details_of(std::current_exception()));
  }
  parallel::write_all(pipe, said);
  std::fflush(nullptr);
  parallel::end_child(0);
}

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
    children.emplace_back(
        [&](int pipe) {
          parallel::die_with_parent(parent);
          live(world, rank, pipe, threads, worker, options.timeout);
        },
        options.fork);
  return results_of("run_processes", *world, parallel::watch(children, *world, options.timeout, false, options.look));
}

}  // namespace everyo::inline v1
