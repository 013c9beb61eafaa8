#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <unistd.h>

#include <algorithm>

#include "distributed.h"

// Ranks that run Python functions.
namespace everyo::python {
namespace {

// Ctrl-C in whoever waits.
void look_at_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// fork(2) as os.fork() does it: the interpreter of the child knows its one thread, and handlers have run.
int fork_interpreter() {
  const nb::gil_scoped_acquire acquire;
  PyOS_BeforeFork();
  const int process = ::fork();
  const int error = errno;
  process == 0 ? PyOS_AfterFork_Child() : PyOS_AfterFork_Parent();
  errno = error;
  return process;
}

SpawnOptions options_of(double timeout, int threads) {
  return {.timeout = Timeout(timeout), .threads = threads, .look = look_at_signals, .fork = fork_interpreter};
}

// worker(group) gives the result as bytes, or (what went wrong, details).
std::string call_worker(nb::handle worker, ProcessGroup& group) {
  const nb::gil_scoped_acquire acquire;
  const auto held = std::make_shared<PyGroup>(std::shared_ptr<ProcessGroup>(&group, [](ProcessGroup*) {}));
  nb::object answer;
  try {
    answer = worker(held);
  } catch (const nb::python_error& error) {
    const std::string said = said_by(error);
    held->close();
    throw WorkerError(said);
  }
  held->close();
  if (PyBytes_Check(answer.ptr())) {
    const auto bytes = nb::borrow<nb::bytes>(answer);
    return {bytes.c_str(), bytes.size()};
  }
  throw WorkerError(text_of(answer[0]), text_of(answer[1]));
}

nb::list bytes_of(const std::vector<std::string>& results) {
  nb::list list;
  for (const std::string& result : results) list.append(nb::bytes(result.data(), result.size()));
  return list;
}

// Errors name what the user called.
template <class F>
std::vector<std::string> as_spawn(F&& run) {
  const nb::gil_scoped_release release;
  try {
    return run();
  } catch (const DistributedError& e) {
    const std::string_view what = e.what();
    const std::size_t end = what.find(']');
    throw DistributedError("[spawn" + std::string(what.substr(std::min(end, what.size()))), e.rank(), e.details());
  }
}

void bind_runner(nb::module_& m, const char* name, decltype(&everyo::run_processes) run, const char* doc) {
  const std::string signature = fmt::format(
      "def {}(world_size: int, worker: collections.abc.Callable[[ProcessGroup], bytes | tuple[str, str]], timeout: "
      "float, threads: int) -> list[bytes]",
      name);
  m.def(
      name,
      [run](int world_size, nb::handle worker, double timeout, int threads) {
        return bytes_of(as_spawn([&] {
          return run(
              world_size, [worker](ProcessGroup& group) { return call_worker(worker, group); },
              options_of(timeout, threads));
        }));
      },
      "world_size"_a, "worker"_a, "timeout"_a, "threads"_a, nb::sig(signature.c_str()), doc);
}

}  // namespace

void bind_spawn(nb::module_& m) {
  bind_runner(m, "run_processes", &run_processes, "worker(group) on forked ranks; what they return.");
  bind_runner(m, "run_threads", &run_threads, "The same on threads.");
  m.def(
      "run_programs",
      [](int world_size, const std::vector<std::string>& command, double timeout, int threads) {
        return bytes_of(as_spawn([&] { return run_programs(world_size, command, options_of(timeout, threads)); }));
      },
      "world_size"_a, "command"_a, "timeout"_a, "threads"_a,
      nb::sig("def run_programs(world_size: int, command: list[str], timeout: float, threads: int) -> list[bytes]"),
      "A program on each rank, which ends with report().");
  m.def(
      "report",
      [](nb::handle answer) {
        if (PyBytes_Check(answer.ptr())) {
          const auto bytes = nb::borrow<nb::bytes>(answer);
          report_result({bytes.c_str(), bytes.size()});
        } else {
          report_problem(WorkerError(text_of(answer[0]), text_of(answer[1])));
        }
      },
      "answer"_a, nb::sig("def report(answer: bytes | tuple[str, str]) -> None"),
      "In a program of run_programs: its result as bytes, or what went wrong, and details.");
}

}  // namespace everyo::python
