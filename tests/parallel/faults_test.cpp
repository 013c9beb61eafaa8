#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "everyo/parallel.h"

// A rank that fails in any way, at any time, in worlds of 2, 3 and 5: all others raise an error that names it and the
// collective within a second, nothing is left, and the next run starts.
namespace everyo {
namespace {

using Seconds = std::chrono::duration<double>;

enum class Fault { kill, stop, exit, exception, other_collective, other_size, early_return };
constexpr const char* names[] = {"kill", "stop", "exit", "exception", "other_collective", "other_size", "early_return"};

struct Trial {
  bool processes;
  int ranks, culprit;
  Fault fault;
  int when;  // collective before which it happens
};
void PrintTo(const Trial& t, std::ostream* out) {
  *out << (t.processes ? "processes" : "threads") << " of " << t.ranks << ", rank " << t.culprit << ", "
       << names[static_cast<int>(t.fault)] << " at " << t.when;
}

// What the ranks that were well saw, written where the test reads it.
struct Report {
  std::atomic<int> raised{0}, named_rank{0}, named_call{0};
  std::atomic<double> longest{0};
};
class SharedReport {
 public:
  SharedReport()
      : memory_(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        report_(new (memory_) Report) {}
  ~SharedReport() { munmap(memory_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report* operator->() const { return report_; }

 private:
  void* memory_;
  Report* report_;
};

void do_fault(Fault fault, ProcessGroup& group) {
  std::vector<float> data(60'000);
  switch (fault) {
    case Fault::kill: ::kill(getpid(), SIGKILL); break;
    case Fault::stop: ::kill(getpid(), SIGSTOP); break;
    case Fault::exit: _exit(3);
    case Fault::exception: throw ValueError("[worker] an error of its own");
    case Fault::other_collective: return group.barrier();
    case Fault::other_size: return group.all_reduce(std::span(data).first(59'999));
    case Fault::early_return: break;
  }
}

void run(const Trial& t) {
  const SharedReport report;
  const auto worker = [&](ProcessGroup& group) -> std::string {
    std::vector<float> data(60'000, 1);
    for (int i = 0; i < 30; ++i) {
      if (i == t.when && group.rank() == t.culprit) {
        do_fault(t.fault, group);
        if (t.fault == Fault::early_return) return {};
      }
      const auto began = std::chrono::steady_clock::now();
      try {
        group.all_reduce(std::span(data), ReduceOp::mean);
      } catch (const DistributedError& error) {
        const double waited = Seconds(std::chrono::steady_clock::now() - began).count();
        if (group.rank() != t.culprit) {
          ++report->raised;
          if (error.rank() == t.culprit || error.rank() == group.rank() || t.fault == Fault::other_collective ||
              t.fault == Fault::other_size)
            ++report->named_rank;  // of two that differ either may be named; the message names both
          const std::string_view what = error.what();
          if (what.find("all_reduce") != std::string_view::npos) ++report->named_call;
          double longest = report->longest;
          while (waited > longest && !report->longest.compare_exchange_weak(longest, waited)) {
          }
        }
        EXPECT_THROW(group.barrier(), DistributedError);  // for good
        throw;
      }
    }
    return {};
  };
  SCOPED_TRACE(::testing::PrintToString(t));
  const auto run_them = t.processes ? run_processes : run_threads;
  try {
    run_them(t.ranks, worker, {.timeout = Timeout(30)});
    ADD_FAILURE() << "no error";
  } catch (const DistributedError& error) {
    const std::string_view what = error.what();
    const std::string_view said = t.fault == Fault::exception ? "ValueError: [worker] an error of its own"
                                  : t.fault == Fault::kill    ? "killed by signal 9"
                                  : t.fault == Fault::exit    ? "exited with status 3"
                                                              : "";
    EXPECT_NE(what.find(said), what.npos) << what;
    if (t.fault < Fault::other_collective) {
      EXPECT_EQ(error.rank(), t.culprit) << what;
    }
  }
  EXPECT_EQ(report->raised, t.ranks - 1);
  EXPECT_EQ(report->named_rank, t.ranks - 1);
  EXPECT_EQ(report->named_call, t.ranks - 1);
  // A bound of the issue, not a timing: what notices a fault looks every 20 ms, and 20 times at a stopped process.
  EXPECT_LT(report->longest, 1.0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(Faults, OfEveryKindOnEveryRankEndAllOthers) {
  const std::ptrdiff_t before = open_files();
  for (const int ranks : {2, 3, 5})
    for (const Fault fault : {Fault::kill, Fault::stop, Fault::exit, Fault::exception, Fault::other_collective,
                              Fault::other_size, Fault::early_return})
      for (int culprit = 0; culprit < ranks; culprit += fault == Fault::stop ? ranks - 1 : 1) {
        run({true, ranks, culprit, fault, 7});
        if (fault > Fault::exit) run({false, ranks, culprit, fault, 7});
      }
  EXPECT_EQ(open_files(), before);
}

// EVERYO_FAULT_RUNS sets how many; 500 before a release.
TEST(Faults, AtRandomLeaveNothing) {
  const char* const given = std::getenv("EVERYO_FAULT_RUNS");
  const int runs = given != nullptr ? std::atoi(given) : 40;
  const std::ptrdiff_t before = open_files();
  std::minstd_rand random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < runs && !HasFailure(); ++i) {
    Trial t{.processes = below(4) != 0, .ranks = 2 + below(4), .culprit = 0, .fault = {}, .when = below(30)};
    t.culprit = below(t.ranks);
    t.fault = static_cast<Fault>(t.processes ? below(7) : 3 + below(4));
    run(t);
  }
  EXPECT_EQ(open_files(), before);
}

// Threads read each other's bytes where they lie. Here they are unmapped as soon as the exchange has thrown.
TEST(Faults, BytesMayGoOnceAnExchangeHasThrown) {
  constexpr std::size_t count = 1 << 20, bytes = count * sizeof(float);
  const auto unmap = [](float* data) { munmap(data, bytes); };
  int turn = 0;
  const auto worker = [&](ProcessGroup& group) -> std::string {
    std::jthread end;
    if (group.rank() == 0)
      end = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(53 * turn));
        group.end("enough");
      });
    while (true) {
      const std::unique_ptr<float, decltype(unmap)> data(
          static_cast<float*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), unmap);
      group.all_reduce(std::span(data.get(), count));
    }
  };
  for (; turn < 60; ++turn) EXPECT_THROW(run_threads(3 + turn % 3, worker), DistributedError);
}

TEST(Faults, ARunThatWorksFollowsOneThatFailed) {
  run({true, 3, 1, Fault::kill, 3});
  const auto results = run_processes(3, [](ProcessGroup& group) {
    float one[] = {1};
    group.all_reduce(std::span(one));
    return std::to_string(static_cast<int>(one[0]));
  });
  EXPECT_THAT(results, ::testing::Each("3"));
}

TEST(Faults, ARankThatIsLateIsNamed) {
  const auto late = [](ProcessGroup& group) -> std::string {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    group.barrier();
    return {};
  };
  for (const auto run : {run_threads, run_processes}) {
    try {
      run(2, late, {.timeout = Timeout(0.3)});
      ADD_FAILURE() << "no error";
    } catch (const DistributedError& error) {
      EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::HasSubstr("rank 1 did not come to barrier number 1"),
                                                 ::testing::HasSubstr("took longer")));
    }
  }
}

TEST(Faults, AWorkerMaySayInItsOwnWordsWhatWentWrong) {
  const auto fail = [](ProcessGroup& group) -> std::string {
    if (group.rank() == 1) throw WorkerError("NoLuck: today", "at dawn");
    group.barrier();
    return {};
  };
  for (const auto run : {run_threads, run_processes}) {
    try {
      run(2, fail, {});
      ADD_FAILURE() << "no error";
    } catch (const DistributedError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1: NoLuck: today"));
      EXPECT_EQ(error.details(), "at dawn");
    }
  }
}

TEST(Faults, WhoeverWaitsMayEndTheRun) {
  const auto wait = [](ProcessGroup& group) -> std::string {
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group.barrier();
    group.barrier();
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return {};
  };
  for (const auto run : {run_threads, run_processes})
    EXPECT_THROW(run(2, wait, {.look = [] { throw std::domain_error("enough"); }}), std::domain_error);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

// Then the system reaps children itself, and waitpid() knows none.
TEST(Faults, ProcessesEndWhereSigchldIsIgnored) {
  const auto old = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_THAT(run_processes(2, [](ProcessGroup& group) { return std::to_string(group.rank()); }),
              ::testing::ElementsAre("0", "1"));
  try {
    run_processes(2, [](ProcessGroup& group) -> std::string {
      if (group.rank() == 1) _exit(0);
      group.barrier();
      return {};
    });
    ADD_FAILURE() << "no error";
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("SIGCHLD"));
  }
  std::signal(SIGCHLD, old);
}

TEST(Faults, ARuntimeMayForkForUs) {
  int forks = 0;
  const auto results =
      run_processes(3, [&](ProcessGroup& group) { return std::to_string(group.rank()) + "/" + std::to_string(forks); },
                    {.fork = [&] { return ++forks, ::fork(); }});
  EXPECT_THAT(results, ::testing::ElementsAre("0/1", "1/2", "2/3"));
}

TEST(Faults, AWorldHasOneTo256Ranks) {
  const auto nothing = [](ProcessGroup&) { return std::string(); };
  EXPECT_THROW(run_threads(0, nothing), ValueError);
  EXPECT_THROW(run_processes(257, nothing), ValueError);
  EXPECT_THROW(run_processes(2, nothing, {.timeout = Timeout(0)}), ValueError);
  EXPECT_THROW(run_threads(2, nothing, {.threads = -1}), ValueError);
}

TEST(Faults, ProcessesStartFromAProgramThatUsedThreads) {  // D15, D16
  run_threads(4, [](ProcessGroup& group) {
    group.barrier();
    return std::string();
  });
  const auto results = run_processes(3, [](ProcessGroup& group) {
    return run_threads(2,
                       [](ProcessGroup& inner) {
                         float one[] = {1};
                         inner.all_reduce(std::span(one));
                         return std::to_string(static_cast<int>(one[0]));
                       })[0] +
           std::to_string(group.rank());
  });
  EXPECT_THAT(results, ::testing::ElementsAre("20", "21", "22"));
}

}  // namespace
}  // namespace everyo
