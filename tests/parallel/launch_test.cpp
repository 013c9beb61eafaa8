#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "everyo/parallel.h"

// Programs that are started on several ranks: this one, once more.
namespace everyo {
namespace {

// Run by the tests below in processes of their own, as a program would be.
TEST(LaunchedProgram, DISABLED_Sums) {
  const auto group = init_process_group();
  ASSERT_EQ(group->world_size(), 3);
  float data[] = {static_cast<float>(group->rank() + 1)};
  group->all_reduce(std::span(data));
  ASSERT_EQ(data[0], 6);
  EXPECT_THROW(init_process_group(), StateError);  // the place is taken
}
TEST(LaunchedProgram, DISABLED_LosesARank) {
  const auto group = init_process_group();
  if (group->rank() == 1) kill(getpid(), SIGKILL);
  EXPECT_THROW(group->barrier(), DistributedError);
}

int launched(int ranks, const std::string& test) {
  return launch(ranks, {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                        "--gtest_filter=LaunchedProgram.DISABLED_" + test});
}

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
TEST(Launch, RefusesAGroupThatNothingOfOursHasSet) {
  for (const char* text : {"", "3", "x:0:1", "3:0:0", "3:0:1:1", "9999:0:1", "0:0:1"}) {
    setenv("EVERYO_GROUP", text, 1);
    EXPECT_THROW(init_process_group(), Error) << text;
  }
  unsetenv("EVERYO_GROUP");
  EXPECT_EQ(init_process_group()->world_size(), 1);
}

}  // namespace
}  // namespace everyo
