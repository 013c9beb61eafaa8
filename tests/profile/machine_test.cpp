#include <gmock/gmock.h>

#include <set>

#include "everyo/context.h"
#include "everyo/profile.h"

namespace everyo {
namespace {

TEST(Machine, VersionsAreNumbers) {
  const Versions v = versions();
  EXPECT_EQ(v.everyo, EVERYO_VERSION);
  EXPECT_THAT(v.onednn, testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+"));
  EXPECT_THAT(v.highway, testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+"));
  EXPECT_THAT(v.compiler, testing::MatchesRegex("(clang|g[+][+]) [0-9]+[.].*"));
}

TEST(Machine, ThreadsFollowTheContext) {
  EXPECT_GE(describe_machine().threads, 1);
  const ThreadLimit one(1);
  EXPECT_EQ(describe_machine().threads, 1);
}

TEST(Machine, UsesNoMoreThanItHas) {
  const Machine machine = describe_machine();
  EXPECT_LE(machine.used, machine.detected);
}

TEST(Machine, PeaksAreMeasuredForEveryFloatingDtype) {
  std::set<DType> seen;
  for (const auto& [dtype, gflops] : measure_peak_flops({.seconds = 0.005})) {
    EXPECT_GT(gflops, 0.001) << name_of(dtype);
    EXPECT_LT(gflops, 1e6) << name_of(dtype);  // a thousand TFLOP/s: the clock or the count would be wrong
    seen.insert(dtype);
  }
  EXPECT_EQ(seen, (std::set<DType>{float32, float64, float16, bfloat16}));
}

TEST(Machine, BandwidthIsMeasured) {
  const double bandwidth = measure_memory_bandwidth({.seconds = 0.005});
  EXPECT_GT(bandwidth, 0.01);
  EXPECT_LT(bandwidth, 1e5);
}

}  // namespace
}  // namespace everyo
