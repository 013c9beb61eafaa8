#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "everyo/parallel.h"

// The system gives a process no more threads: ranks that have theirs do not wait for those that will not come.
namespace everyo {
namespace {

void allow_threads(rlim_t most) {
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = most;
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) throw std::system_error(errno, std::generic_category(), "setrlimit");
}
bool gives_thread(rlim_t most) {
  allow_threads(most);
  // The one before may count for a moment after it was joined.
  for (int i = 0; i < 10; ++i) try {
      std::thread([] {}).join();
      return true;
    } catch (const std::system_error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  return false;
}
// From now on this process, which may not be root's, gets so many threads more, and none beyond.
void leave_threads(rlim_t more) {
  // Of a user that has no other process, so that none ends or begins meanwhile.
  if (getuid() == 0 && setuid(61'234) != 0) throw std::system_error(errno, std::generic_category(), "setuid");
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  rlim_t least = 0, enough = std::min<rlim_t>(limit.rlim_max, 1'000'000);  // the smallest limit that gives one
  while (enough - least > 1) (gives_thread((least + enough) / 2) ? enough : least) = (least + enough) / 2;
  allow_threads(enough - 1 + more);
}

// What `body` returns, in a process of its own.
std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string said;
    try {
      said = body();
    } catch (const std::exception& error) {
      said = std::string("unexpected: ") + error.what();
    }
    _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  for (char c = 0; read(ends[0], &c, 1) == 1;) said += c;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return said;
}

TEST(RefusedThreads, OfARankEndTheRunAndNameIt) {
  const std::string said = in_child([] {
    leave_threads(3);
    std::atomic<int> began = 0, told = 0;
    try {
      run_threads(
          6,
          [&](ProcessGroup& group) {
            ++began;
            try {
              group.barrier();
            } catch (const DistributedError& error) {
              if (error.rank() == 3 && std::string(error.what()).find("rank 3 has no thread") != std::string::npos)
                ++told;
              throw;
            }
            return std::string();
          },
          {.timeout = Timeout(30)});
    } catch (const DistributedError& error) {
      return std::to_string(began) + " began, " + std::to_string(told) + " told, rank " + std::to_string(error.rank()) +
             ": " + error.what();
    }
    return std::string("nothing thrown");
  });
  EXPECT_THAT(said, ::testing::StartsWith("3 began, 3 told, rank 3: [run_threads] rank 3 of 6: the system refuses its "
                                          "thread ("));
  EXPECT_THAT(said, ::testing::EndsWith("); run fewer ranks, or raise the limit of threads (ulimit -u)"));
}

TEST(RefusedThreads, LeaveTheRunToItsLookAndItsTimeout) {
  const std::string said = in_child([] {
    leave_threads(1);
    std::atomic<bool> looked = false;
    try {
      run_threads(2,
                  [&](ProcessGroup&) {
                    while (!looked) std::this_thread::yield();  // it exchanges nothing, and cannot be ended
                    return std::string();
                  },
                  {.timeout = Timeout(30), .look = [&] { looked = true; }});
    } catch (const DistributedError& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  });
  EXPECT_THAT(said, ::testing::HasSubstr("rank 1 of 2"));
}

// A call that found no thread must not be waited for by the next.
TEST(RefusedThreads, OfAsynchronousExchangesAreAnError) {
  const std::string said = in_child([] {
    leave_threads(1);
    const auto results = run_threads(1, [](ProcessGroup& group) {
      std::string message;
      float data[] = {1};
      try {
        group.all_reduce_async(std::as_writable_bytes(std::span(data)), float32, ReduceOp::sum).wait();
      } catch (const Error& error) {
        message = error.what();
      }
      group.all_reduce(std::span(data));
      return message;
    });
    return results[0];
  });
  EXPECT_THAT(said, ::testing::StartsWith("[ProcessGroup] the system refuses the thread of asynchronous exchanges ("));
  EXPECT_THAT(said, ::testing::EndsWith("run fewer ranks, or raise the limit of threads (ulimit -u)"));
}

}  // namespace
}  // namespace everyo
