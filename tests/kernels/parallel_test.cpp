#include "kernels/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "everyo/context.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t count = 10'007, grain = 64, blocks = (count + grain - 1) / grain;

// A float32 sum with one partial a block: depends on the cut, so it shows any change of it.
float blocked_sum(int threads) {
  const ThreadLimit limit(threads);
  std::vector<float> partial(static_cast<std::size_t>(blocks));
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    float sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += 1.0f / static_cast<float>(i + 3);
    partial[static_cast<std::size_t>(begin / grain)] += sum;
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0f);
}

TEST(ParallelFor, VisitsEachIndexOnceInBlocksOfTheGrain) {
  for (const int threads : {1, 2, 4, 7}) {
    const ThreadLimit limit(threads);
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
    std::atomic<int> odd_blocks = 0;
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
      if (begin % grain != 0 || end != std::min(count, begin + grain)) ++odd_blocks;
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(odd_blocks, 0);
    for (const auto& times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(ParallelFor, GivesTheSameBitsForAnyNumberOfThreads) {
  const float one = blocked_sum(1);
  for (const int threads : {2, 3, 4, 8}) EXPECT_EQ(blocked_sum(threads), one) << threads;
}

TEST(ParallelFor, RunsSmallCountsOnTheCaller) {
  const ThreadLimit limit(4);
  std::thread::id ran;
  parallel_for(grain, grain, [&](std::int64_t begin, std::int64_t end) {
    ran = std::this_thread::get_id();
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, grain);
    EXPECT_FALSE(in_parallel());
  });
  EXPECT_EQ(ran, std::this_thread::get_id());
  parallel_for(0, grain, [](std::int64_t, std::int64_t) { FAIL() << "nothing to do"; });
}

TEST(ParallelFor, UsesSeveralThreads) {
  const ThreadLimit limit(3);
  std::vector<std::thread::id> ids(3);
  std::atomic<int> started = 0;
  parallel_for(3, 1, [&](std::int64_t begin, std::int64_t) {
    ids[static_cast<std::size_t>(begin)] = std::this_thread::get_id();
    EXPECT_TRUE(in_parallel());
    // A thread may take every block that nobody else has taken: keep it until all three are there, or for a minute.
    ++started;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (started < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[1], ids[2]);
  EXPECT_NE(ids[0], ids[2]);
  EXPECT_FALSE(in_parallel());
}

TEST(ParallelFor, OneSlowBlockHoldsUpNoOther) {
  const ThreadLimit limit(2);
  std::atomic<int> done = 0;
  bool others_done = false;
  parallel_for(100, 1, [&](std::int64_t begin, std::int64_t) {
    if (begin == 0) {  // the first of one run: the other thread does the rest of it
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
      while (done < 99 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      others_done = done == 99;
    }
    ++done;
  });
  EXPECT_TRUE(others_done);
}

TEST(ParallelFor, RunsNestedCallsInPlace) {
  const ThreadLimit limit(4);
  std::atomic<int> elsewhere = 0;
  parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
    EXPECT_EQ(max_threads(), 1);
    const auto id = std::this_thread::get_id();
    parallel_for(100, 10, [&](std::int64_t, std::int64_t) { elsewhere += std::this_thread::get_id() != id; });
  });
  EXPECT_EQ(elsewhere, 0);
}

TEST(ParallelFor, CarriesTheContextIntoWorkers) {
  const ThreadLimit limit(4);
  const NoGrad no_grad;
  const Scoped<&Context::seed> seed(42);
  std::atomic<int> wrong = 0;
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) { wrong += context().grad || context().seed != 42; });
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelFor, ThrowsOnTheCallerWhatABodyThrew) {
  const ThreadLimit limit(4);
  EXPECT_THROW(parallel_for(8, 1,
                            [](std::int64_t begin, std::int64_t) {
                              if (begin == 6) throw std::runtime_error("block 6");
                            }),
               std::runtime_error);
  EXPECT_EQ(blocked_sum(4), blocked_sum(1));  // the pool works on
}

TEST(ParallelFor, ObeysTheThreadLimit) {
  {
    const ThreadLimit limit(5);
    EXPECT_EQ(max_threads(), 5);
  }
  EXPECT_GE(max_threads(), 1);
}

TEST(ParallelFor, ManyRegionsInARowLoseNoBlock) {
  for (const int threads : {2, 3, 8}) {
    const ThreadLimit limit(threads);
    std::vector<int> sums(64);
    for (int round = 0; round < 5000; ++round)
      parallel_for(64, 1, [&](std::int64_t begin, std::int64_t) { ++sums[static_cast<std::size_t>(begin)]; });
    EXPECT_EQ(sums, std::vector<int>(64, 5000)) << threads;
  }
}

// A child of a process that has run parallel work runs parallel work of its own.
TEST(ParallelFor, WorksInAForkedChildAndOnInTheParent) {
  const float expected = blocked_sum(4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(blocked_sum(4) == expected ? 0 : 1);
  int status = -1;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      FAIL() << "the child hung in its first parallel region";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(blocked_sum(4), expected);
}

TEST(ParallelFor, ServesSeveralCallersAtOnce) {
  const float expected = blocked_sum(1);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) wrong += blocked_sum(2) != expected;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace everyo::kernels
