#include "everyo/logging.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "everyo/error.h"

namespace everyo {
namespace {

class Logging : public testing::Test {
 protected:
  void TearDown() override { set_log_sink(nullptr); }
  std::vector<std::string> lines;
  LogSink collect = [this](LogLevel level, std::string_view message) {
    lines.push_back(std::string(name_of(level)) + ": " + std::string(message));
  };
};

TEST_F(Logging, SilentUntilASinkIsSet) {
  EXPECT_FALSE(log_enabled(LogLevel::error));
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log(LogLevel::error, "nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout(), "");
}

TEST_F(Logging, LevelsBelowTheThresholdAreDropped) {
  set_log_sink(collect, LogLevel::warning);
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_TRUE(log_enabled(LogLevel::error));
  EXPECT_FALSE(log_enabled(LogLevel::off));
  log(LogLevel::info, "a");
  log(LogLevel::warning, "b");
  log(LogLevel::error, "c");
  log(LogLevel::off, "d");
  EXPECT_EQ(lines, (std::vector<std::string>{"warning: b", "error: c"}));
  set_log_sink(nullptr);
  log(LogLevel::error, "e");
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(Logging, SinkMayThrowAndMayLog) {
  int calls = 0;
  set_log_sink([&](LogLevel, std::string_view) {
    ++calls;
    log(LogLevel::error, "from inside");
    throw 1;
  });
  log(LogLevel::info, "x");
  log(LogLevel::info, "y");
  EXPECT_EQ(calls, 2);
}

TEST_F(Logging, SinkMayNotReplaceItself) {
  bool refused = false;
  set_log_sink([&](LogLevel, std::string_view) {
    try {
      set_log_sink(nullptr);
    } catch (const StateError&) {
      refused = true;
    }
  });
  log(LogLevel::info, "x");
  EXPECT_TRUE(refused);
}

TEST_F(Logging, OneCallAtATime) {
  set_log_sink(collect);  // a vector: unsynchronised calls would lose lines, or crash
  const auto work = [] {
    for (int i = 0; i < 500; ++i) log(LogLevel::info, "line");
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  EXPECT_EQ(lines.size(), 1000u);
}

}  // namespace
}  // namespace everyo
