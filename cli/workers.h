#pragma once
#include <functional>

#include "everyo/parallel.h"

namespace cli {

struct WorkersOptions {
  int count = 1;
  bool as_threads = false;  ///< else they are processes
  int threads = 0;          ///< of each worker's kernels; 0: the processors there are, shared out
};
/// Runs `work` on each rank and gives rank 0's exit code; with one, here and without a group. Throws DistributedError
/// with what the first rank that failed said, or what became of its process.
int on_workers(const WorkersOptions& options, const std::function<int(everyo::ProcessGroup*)>& work);

}  // namespace cli
