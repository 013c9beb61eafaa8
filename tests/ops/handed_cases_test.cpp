// Small inputs that went wrong in other libraries (tests/cases.md) and belong to no one op's file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <limits>
#include <thread>

#include "everyo/ops.h"

namespace {
namespace eo = everyo;
using eo::Tensor;

Tensor ramp(const eo::Shape& shape) {
  const Tensor t = Tensor::empty(shape);
  float value = -1;
  for (float& x : t.data<float>()) x = value = value > 1 ? -1 : value + 0.0173f;
  return t;
}

// Runs `body` in a forked child: true when it returned true there. Fails when it hangs.
template <class F>
bool holds_in_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);  // sanitized and on a busy machine
  int status = -1;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ADD_FAILURE() << "the child hung";
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(HandedCases, D15MatmulInAForkedChildOfAParentThatUsedThreads) {
  const eo::ThreadLimit two(2);
  const Tensor a = ramp({256, 256}), b = ramp({256, 256});  // large enough for oneDNN and both threads
  const std::vector<double> expected = eo::matmul(a, b).to_vector();
  EXPECT_TRUE(holds_in_child([&] { return eo::matmul(a, b).to_vector() == expected; }));
  EXPECT_EQ(eo::matmul(a, b).to_vector(), expected);  // the parent works on
}

TEST(HandedCases, D16BatchedMatmulInAForkedChild) {
  const eo::ThreadLimit two(2);
  const Tensor a = ramp({4, 64, 96}), b = ramp({4, 96, 64});
  const std::vector<double> expected = eo::matmul(a, b).to_vector();
  EXPECT_TRUE(holds_in_child([&] { return eo::matmul(a, b).to_vector() == expected; }));
  EXPECT_EQ(eo::matmul(a, b).to_vector(), expected);
}

// -1e8 does not fit into float16: it becomes -inf, which masks, and never a finite number or NaN.
TEST(HandedCases, A16MaskConstantBeyondFloat16) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Tensor::full({}, -1e8, eo::float16).item(), -infinity);
  EXPECT_LT(Tensor::full({}, -1e8, eo::bfloat16).item(), -9e7);  // bfloat16 has float32's range

  const Tensor scores = Tensor::full({1, 3}, 2, eo::float16);
  const Tensor keep = Tensor::from({true, true, false}, {1, 3});
  const Tensor masked = eo::where(keep, scores, Tensor::full({}, -1e8, eo::float16));
  EXPECT_EQ(masked.dtype(), eo::float16);
  EXPECT_THAT(eo::softmax(masked).to_vector(), testing::ElementsAre(0.5, 0.5, 0));
}

}  // namespace
