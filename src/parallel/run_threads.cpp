#include <cxxabi.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <typeinfo>

#include "everyo/context.h"
#include "everyo/logging.h"
#include "parallel/process_group.h"
#include "parallel/spawn.h"

namespace everyo {
namespace parallel {

std::string describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, nullptr), &std::free);
    std::string type = name ? name.get() : "exception";
    if (const std::size_t colon = type.rfind("::"); colon != std::string::npos) type.erase(0, colon + 2);
    return fmt::format("{}: {}", type, e.what());
  } catch (...) {
    return "an exception of unknown type";
  }
}

int processors() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace parallel

inline namespace v1 {

std::vector<std::string> run_threads(int world_size, const std::function<std::string(ProcessGroup&)>& worker,
                                     const SpawnOptions& options) {
  check_world("run_threads", world_size, options);
  const auto world = parallel::SharedWorld::make(world_size, true);
  std::vector<parallel::Outcome> outcomes(static_cast<std::size_t>(world_size));
  const Context snapshot = context();
  const int threads = threads_of_rank(world_size, options);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < world_size; ++rank)
      ranks.emplace_back([&, rank] {
        parallel::Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        const ContextScope in(snapshot);
        const ThreadLimit limit(threads);
        try {
          const std::unique_ptr<ProcessGroup> group = join(world, rank, options.timeout);
          outcome.result = worker(*group);
          outcome.done = true;
        } catch (...) {
          outcome.problem = parallel::describe(std::current_exception());
          world->fail(rank, fmt::format("rank {} raised {}", rank, outcome.problem));
        }
      });
  }
  return results_of("run_threads", *world, std::move(outcomes));
}

void check_world(std::string_view name, int world_size, const SpawnOptions& options) {
  if (world_size < 1 || world_size > parallel::most_ranks)
    throw ValueError(fmt::format("[{}] world_size is {}; it must be at least 1 and at most {}", name, world_size,
                                 parallel::most_ranks),
                     ErrorKind::distributed);
  if (!(options.timeout.count() > 0))
    throw ValueError(fmt::format("[{}] timeout is {:g} s; it must be above 0", name, options.timeout.count()));
  if (options.threads < 0)
    throw ValueError(fmt::format("[{}] threads is {}; it must be 0 or more", name, options.threads));
}

int threads_of_rank(int world_size, const SpawnOptions& options) {
  const int processors = parallel::processors();
  if (options.threads == 0) return std::max(1, processors / world_size);
  if (options.threads > 1 && options.threads * world_size > processors)
    log(LogLevel::warning, fmt::format("[ProcessGroup] {} ranks of {} threads share {} processors and will wait for "
                                       "each other; leave threads at 0, or give fewer",
                                       world_size, options.threads, processors));
  return options.threads;
}

std::vector<std::string> results_of(std::string_view name, const parallel::SharedWorld& world,
                                    std::vector<parallel::Outcome> outcomes) {
  std::vector<std::string> results;
  for (parallel::Outcome& outcome : outcomes)
    if (outcome.done) results.push_back(std::move(outcome.result));
  if (results.size() == outcomes.size()) return results;
  // The rank that is to blame, if it can say what happened; else the first that can.
  const int blamed = world.failed_rank();
  const auto said = [](const parallel::Outcome& o) { return !o.problem.empty(); };
  const auto own = blamed >= 0 && said(outcomes[static_cast<std::size_t>(blamed)])
                       ? outcomes.begin() + blamed
                       : std::ranges::find_if(outcomes, said);
  const int rank = own == outcomes.end() ? blamed : static_cast<int>(own - outcomes.begin());
  throw DistributedError(
      fmt::format("[{}] rank {}: {}", name, rank, own == outcomes.end() ? "ended without a result" : own->problem),
      blamed >= 0 ? blamed : rank);
}

}  // namespace v1
}  // namespace everyo
