#pragma once
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/parallel.h"

namespace everyo::parallel {

/// What came of one rank.
struct Outcome {
  bool done = false;      ///< it returned
  int status = 0;         ///< of its process: the exit status, or 128 and a signal
  std::string result{};   ///< what it returned
  std::string problem{};  ///< "ValueError: …"
  std::string details{};  ///< of a WorkerError
  std::string said{};     ///< of a program: why it could not be run
};

/// First letter of what a process says of itself.
inline constexpr char said_result = 'r', said_problem = 'x';

/// "ValueError: message" of an exception, the type's own name without namespaces; a WorkerError's message alone.
std::string describe(const std::exception_ptr& error);
/// Those of a WorkerError.
std::string details_of(const std::exception_ptr& error);

/// The processors that this process may use.
int processors() noexcept;

class SharedWorld;
/// Ends a run of this timeout for its ranks.
void fail_as_too_long(SharedWorld& world, Timeout timeout) noexcept;

}  // namespace everyo::parallel

namespace everyo::inline v1 {

/// What run_threads and run_processes share.
void check_world(std::string_view name, int world_size, const SpawnOptions& options);
int threads_of_rank(int world_size, const SpawnOptions& options);
/// The results, or DistributedError.
std::vector<std::string> results_of(std::string_view name, const parallel::SharedWorld& world,
                                    std::vector<parallel::Outcome> outcomes);

}  // namespace everyo::inline v1
