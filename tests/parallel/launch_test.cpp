#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "everyo/context.h"
#include "everyo/parallel.h"

// Programs that are started on several ranks: this one, once more.
namespace everyo {
namespace {

// Run by the tests below in processes of their own, as a program would be.
TEST(LaunchedProgram, DISABLED_Sums) {
  const auto group = init_process_group();
  ASSERT_EQ(group->world_size(), 3);
  EXPECT_EQ(context().rank, group->rank());
  float data[] = {static_cast<float>(group->rank() + 1)};
  group->all_reduce(std::span(data));
  ASSERT_EQ(data[0], 6);
  EXPECT_THROW(init_process_group(), StateError);    // the place is taken
  EXPECT_EQ(group->shared_memory(10)->bytes(), 10);  // and what has it is not harmed
}
TEST(LaunchedProgram, DISABLED_LosesARank) {
  const auto group = init_process_group();
  if (group->rank() == 1) kill(getpid(), SIGKILL);
  EXPECT_THROW(group->barrier(), DistributedError);
}

TEST(LaunchedProgram, DISABLED_Reports) {
  const auto group = init_process_group();
  float data[] = {static_cast<float>(group->rank() + 1)};
  group->all_reduce(std::span(data));
  report_result(std::to_string(static_cast<int>(data[0])) + " from " + std::to_string(group->rank()));
  EXPECT_THROW(report_result("again"), StateError);
}
TEST(LaunchedProgram, DISABLED_ReportsAProblem) {
  const auto group = init_process_group();
  if (group->rank() == 1)
    report_problem(WorkerError("NoLuck: today", std::string(2000, 'd')));
  else
    report_result("well");
  _exit(group->rank() == 1 ? 1 : 0);
}

std::vector<std::string> program(const std::string& test) {
  return {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
          "--gtest_filter=LaunchedProgram.DISABLED_" + test};
}

int launched(int ranks, const std::string& test) { return launch(ranks, program(test)); }

TEST(Launch, GivesAProgramItsGroup) { EXPECT_EQ(launched(3, "Sums"), 0); }
TEST(Launch, EndsWithTheStatusOfTheRankToBlame) {
  EXPECT_EQ(launched(3, "LosesARank"), 128 + SIGKILL);
  EXPECT_EQ(launch(2, {"sh", "-c", "exit 5"}), 5);
  EXPECT_EQ(launch(1, {"true"}), 0);
}
TEST(Launch, NeedsAProgram) {
  EXPECT_THROW(launch(2, {}), ValueError);
  EXPECT_THROW(launch(0, {"true"}), ValueError);
  EXPECT_THROW(launch(1, {"no-such-program-anywhere"}), FileError);
}
TEST(RunPrograms, GivesWhatEachReports) {
  for (const Timeout timeout : {default_timeout, no_timeout})
    EXPECT_THAT(run_programs(3, program("Reports"), {.timeout = timeout}),
                ::testing::ElementsAre("6 from 0", "6 from 1", "6 from 2"));
}
TEST(RunPrograms, SaysWhatWentWrong) {
  try {
    run_programs(2, program("ReportsAProblem"));
    ADD_FAILURE() << "no error";
  } catch (const DistributedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1: NoLuck: today"));
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.details(), std::string(2000, 'd'));
  }
  EXPECT_THROW(run_programs(2, {}), ValueError);
  EXPECT_THROW(run_programs(2, {"true"}), DistributedError);  // it reports nothing
  EXPECT_THROW(run_programs(1, {"no-such-program-anywhere"}), DistributedError);
  EXPECT_THROW(report_result("to nobody"), StateError);
}

TEST(Launch, RefusesAGroupThatNothingOfOursHasSet) {
  for (const char* text : {"", "3", "x:0:1", "3:0:0", "3:0:1:1", "9999:0:1", "0:0:1"}) {
    setenv("EVERYO_GROUP", text, 1);
    EXPECT_THROW(init_process_group(), Error) << text;
  }
  unsetenv("EVERYO_GROUP");
  EXPECT_EQ(init_process_group()->world_size(), 1);
}

TEST(Launch, LeavesDescriptorsThatAreNoGroupAsTheyAre) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const int file = memfd_create("other", 0);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 1 << 20), 0);
  const auto rank = context().rank;
  for (const int descriptor : {0, 1, 2, pipe_ends[0], file}) {
    const int before = fcntl(descriptor, F_GETFD);
    setenv("EVERYO_GROUP", (std::to_string(descriptor) + ":1:1").c_str(), 1);
    EXPECT_THROW(init_process_group(), Error) << descriptor;
    EXPECT_EQ(fcntl(descriptor, F_GETFD), before) << descriptor;
  }
  EXPECT_EQ(context().rank, rank);
  unsetenv("EVERYO_GROUP");
  for (const int descriptor : {pipe_ends[0], pipe_ends[1], file}) close(descriptor);
}

}  // namespace
}  // namespace everyo
