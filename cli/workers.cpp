#include "cli/workers.h"

#include <string>

#include "everyo/logging.h"

namespace cli {

int on_workers(const WorkersOptions& options, const std::function<int(everyo::ProcessGroup*)>& work) {
  if (options.count == 1) return work(nullptr);
  const everyo::SpawnOptions spawn{.timeout = everyo::no_timeout, .threads = options.threads};
  const auto rank = [&](everyo::ProcessGroup& group) {
    if (group.rank() > 0 && !options.as_threads) everyo::set_log_sink({});  // rank 0 says it
    return std::to_string(work(&group));
  };
  const auto results = options.as_threads ? everyo::run_threads(options.count, rank, spawn)
                                          : everyo::run_processes(options.count, rank, spawn);
  return std::stoi(results[0]);
}

}  // namespace cli
