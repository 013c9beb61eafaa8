#include <cxxabi.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
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
  } catch (const WorkerError& e) {
    return e.what();
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

std::string details_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const WorkerError& e) {
    return e.details();
  } catch (...) {
    return {};
  }
}

void fail_as_too_long(SharedWorld& world, Timeout timeout) noexcept {
  world.fail(-1, fmt::format("the run took longer than {:g} s, its timeout; give it a longer one", timeout.count()));
}

int processors() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace parallel

inline namespace v1 {
namespace {

// Of all ranks of a run.
class Ending {
 public:
  explicit Ending(int ranks) : running_(ranks) {}
  void one_has_ended() {
    const std::scoped_lock lock(mutex_);
    --running_;
    changed_.notify_all();
  }
  void never_began(int ranks) {
    const std::scoped_lock lock(mutex_);
    running_ -= ranks;
  }
  // Threads cannot be ended: after the timeout their exchanges throw.
  void wait(parallel::SharedWorld& world, const SpawnOptions& options) {
    const auto began = parallel::Clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return running_ == 0; })) {
      lock.unlock();
      if (parallel::Clock::now() - began > options.timeout) parallel::fail_as_too_long(world, options.timeout);
      if (options.look) options.look();
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
};

}  // namespace

std::vector<std::string> run_threads(int world_size, const std::function<std::string(ProcessGroup&)>& worker,
                                     const SpawnOptions& options) {
  check_world("run_threads", world_size, options);
  const auto world = parallel::SharedWorld::make(world_size, true);
  std::vector<parallel::Outcome> outcomes(static_cast<std::size_t>(world_size));
  const Context snapshot = context();
  const int threads = threads_of_rank(world_size, options);
  Ending ending(world_size);
  std::optional<DistributedError> refused;
  {
    std::vector<std::jthread> ranks;
    const auto start = [&](int rank) {
      ranks.emplace_back([&, rank] {
        parallel::Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        const ContextScope in(snapshot);
        const Scoped<&Context::rank> draws(rank);
        const ThreadLimit limit(threads);
        try {
          const std::unique_ptr<ProcessGroup> group = join(world, rank, options.timeout);
          outcome.result = worker(*group);
          outcome.done = true;
        } catch (...) {
          outcome.problem = parallel::describe(std::current_exception());
          outcome.details = parallel::details_of(std::current_exception());
          world->fail(rank, fmt::format("rank {} raised {}", rank, outcome.problem));
        }
        ending.one_has_ended();
      });
    };
    try {
      for (int rank = 0; rank < world_size && !refused; ++rank) try {
          start(rank);
        } catch (const std::system_error& error) {
          const std::string reason = error.code().message();
          refused.emplace(fmt::format("[run_threads] rank {} of {}: the system refuses its thread ({}); run fewer "
                                      "ranks, or raise the limit of threads (ulimit -u)",
                                      rank, world_size, reason),
                          rank);
          world->fail(rank, fmt::format("rank {} has no thread: {}", rank, reason));
          ending.never_began(world_size - rank);
        }
      ending.wait(*world, options);
    } catch (...) {
      world->fail(-1, "the run was ended by its caller");
      throw;
    }
  }
  if (refused) throw DistributedError(*refused);
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
  if (blamed < 0 && world.failed()) world.raise(name);
  const int rank = own == outcomes.end() ? blamed : static_cast<int>(own - outcomes.begin());
  if (own == outcomes.end())
    throw DistributedError(fmt::format("[{}] rank {}: ended without a result", name, rank), blamed);
  throw DistributedError(fmt::format("[{}] rank {}: {}", name, rank, own->problem), blamed >= 0 ? blamed : rank,
                         own->details);
}

}  // namespace v1
}  // namespace everyo
