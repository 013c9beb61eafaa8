#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <random>
#include <thread>

#include "everyo/checkpoint.h"
#include "everyo/error.h"
#include "support/temporary_folder.h"

// Saving that is cut off: by SIGKILL at random moments, by SIGKILL at every system call, by a full disk.
namespace everyo {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;

StateTree state_of_step(std::int64_t step) {
  const std::vector<float> weight(10'000, static_cast<float>(step));
  StateTree state;
  state["step"] = step;
  state["weight"] = StateArray::copy_of({float32, {100, 100}}, std::as_bytes(std::span(weight)));
  return state;
}

class Crash : public testing::Test {
 protected:
  Crash() { store.save(state_of_step(0), 0); }
  /// The step of the newest checkpoint, which is whole.
  [[nodiscard]] std::int64_t whole_step() const {
    const std::optional<Checkpoint> found = store.load_latest();
    if (!found) return -1;
    EXPECT_TRUE(found->state == state_of_step(found->step));
    return found->step;
  }
  TemporaryFolder temporary;
  fs::path folder = temporary.path() / "run";
  CheckpointStore store{folder, {.keep_last = 2}};
};

/// A child that saves one step. It gives a sign when it begins and one when it has saved.
class Saving {
 public:
  Saving(CheckpointStore& store, std::int64_t step) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const StateTree state = state_of_step(step);
    child_ = fork();
    if (child_ == 0) {
      (void)!write(ends[1], "b", 1);
      store.save(state, step);
      (void)!write(ends[1], "e", 1);
      _exit(0);
    }
    close(ends[1]);
    signs_ = ends[0];
  }
  ~Saving() {
    kill_now();
    close(signs_);
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

  /// Waits for the next sign; false when the child is gone.
  [[nodiscard]] bool sign() const {
    char c = 0;
    return read(signs_, &c, 1) == 1;
  }
  void kill_now() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(std::exchange(child_, -1), nullptr, 0);
  }

 private:
  pid_t child_ = -1;
  int signs_ = -1;
};

TEST_F(Crash, F01AKillAtARandomMomentOfSavingLeavesAWholeCheckpoint) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> saving_takes{0};
  for (int i = 0; i < 5; ++i) {
    CheckpointStore elsewhere(temporary.path() / "elsewhere", {.keep_last = 2});
    Saving saving(elsewhere, i);
    ASSERT_TRUE(saving.sign());
    const auto begin = Clock::now();
    ASSERT_TRUE(saving.sign());
    saving_takes = std::max(saving_takes, std::chrono::duration<double>(Clock::now() - begin));
  }
  std::mt19937 random(1);
  std::int64_t last = 0;
  int ended = 0;
  for (int round = 0; round < 50; ++round) {
    Saving saving(store, last + 1);
    ASSERT_TRUE(saving.sign());
    std::this_thread::sleep_for(saving_takes * std::uniform_real_distribution<double>(0, 1)(random));
    saving.kill_now();
    ended += saving.sign() ? 1 : 0;
    const std::int64_t step = whole_step();
    ASSERT_THAT(step, AnyOf(last, last + 1)) << round;
    last = step;
  }
  RecordProperty("milliseconds_of_a_saving", static_cast<int>(1000 * saving_takes.count()));
  RecordProperty("killed_with_the_old_one_latest", static_cast<int>(50 - last));
  RecordProperty("killed_with_the_new_one_latest", static_cast<int>(last - ended));
  RecordProperty("saved_before_the_kill", ended);
  store.save(state_of_step(last + 1), last + 1);
  for (const auto& each : fs::directory_iterator(folder))
    EXPECT_FALSE(each.path().filename().string().starts_with('.')) << each.path();  // nothing is left in the making
}

/// A child that saves one step and is killed when it is about to enter its `call`-th system call of that; false when it
/// made fewer.
bool killed_before_call(CheckpointStore& store, std::int64_t step, int call) {
  const StateTree state = state_of_step(step);
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0 || raise(SIGSTOP) != 0) _exit(2);
    store.save(state, step);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  // It stops where it enters a call and where it leaves it.
  for (int stop = 0; WIFSTOPPED(status); ++stop) {
    if (stop == 2 * call + 1) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return true;
    }
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error("the child did not save");
  return false;
}

TEST_F(Crash, F01AKillBeforeAnySystemCallOfSavingLeavesAWholeCheckpoint) {
  int calls = 0, olds = 0;
  for (bool killed = true; killed; ++calls) {
    fs::remove_all(folder);
    store = CheckpointStore(folder, {.keep_last = 1});  // so that saving ends with the removal of the old one
    store.save(state_of_step(0), 0);
    killed = killed_before_call(store, 1, calls);
    const std::int64_t step = whole_step();
    ASSERT_THAT(step, AnyOf(0, 1)) << "killed before call " << calls;
    ASSERT_TRUE(killed || step == 1);
    olds += step == 0 ? 1 : 0;
  }
  EXPECT_GT(olds, 10);
  EXPECT_LT(olds, calls - 10);
  RecordProperty("calls", calls);
  RecordProperty("killed_with_the_old_one_latest", olds);
}

TEST_F(Crash, F02AFullDiskKeepsTheOldOne) {
  const StateTree state = state_of_step(1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // files may not grow beyond what the arrays need
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      store.save(state, 1);
    } catch (const FileError&) {
      _exit(0);
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(whole_step(), 0);
  EXPECT_EQ(store.list().size(), 1u);
  for (const auto& each : fs::directory_iterator(folder))
    EXPECT_FALSE(each.path().filename().string().starts_with('.')) << each.path();
}

}  // namespace
}  // namespace everyo
