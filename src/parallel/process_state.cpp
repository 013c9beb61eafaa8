#include "parallel/process_state.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace everyo::parallel {

char process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');  // the program's name may hold anything
  return end == std::string::npos || end + 2 >= line.size() ? '\0' : line[end + 2];
}

void fail_as_stopped(SharedWorld& world, int rank, int process) noexcept {
  world.fail(rank, fmt::format("rank {} (process {}) is stopped; let it go on, or end the run", rank, process));
}

}  // namespace everyo::parallel
