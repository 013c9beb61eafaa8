// One model and many threads: inference, and the shards of one batch.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "everyo/autograd.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using namespace testing_nn;  // NOLINT: the tests' own modules

TEST(Threads, ConcurrentInferenceOnOneModelFromTheFirstCallOn) {
  Net net;
  net.eval();
  const Net copy = net.clone();
  const Net fresh = [] {
    Net n;
    for (Block& block : n.blocks)
      if (block.watch) block.watch->eval();
    return n;
  }();
  const Tensor x = ramp({5, 4});
  const std::string want = bits(copy(x));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const NoGrad no_grad;
      for (int i = 0; i < 50; ++i)
        if (bits(fresh(x)) != want) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Gradients and statistics of eight fixed shards, computed by `count` threads side by side.
std::vector<std::string> trained_by(int count, const Net& from) {
  constexpr int shards = 8;
  Net net = from.clone();
  const std::vector<Tensor> slots = net.parameters();
  std::vector<GradientSink> sinks(shards);
  std::vector<BufferUpdates> updates(shards);
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t, snapshot = context()] {
      const ContextScope carried(snapshot);
      for (int shard = t; shard < shards; shard += count) {
        const auto at = static_cast<std::size_t>(shard);
        const Scoped<&Context::gradients> sink(&sinks[at]);
        const Scoped<&Context::buffers> queue(&updates[at]);
        const Scoped<&Context::shard> number(shard);
        total(net(ramp({2 + shard % 3, 4}))).backward();
      }
    });
  for (std::thread& thread : threads) thread.join();
  apply_updates(updates);
  std::vector<std::string> result;
  for (const Tensor& slot : slots) {
    EXPECT_FALSE(slot.grad().defined());  // all went into the sinks
    Tensor sum = Tensor::zeros(slot.shape());
    for (GradientSink& sink : sinks) {
      const auto gradient = sink.slot(slot).value.data<float>();
      for (std::size_t i = 0; i < gradient.size(); ++i) sum.data<float>()[i] += gradient[i];
    }
    result.push_back(bits(sum));
  }
  for (const auto& [name, buffer] : net.named_buffers()) result.push_back(bits(buffer));
  return result;
}

TEST(Threads, EightShardsGiveTheSameBitsOnOneThreeAndFourThreads) {
  const Net net;
  const std::vector<std::string> one = trained_by(1, net);
  ASSERT_EQ(one.size(), 8u);
  EXPECT_NE(one.back(), std::string(16, '\0'));  // the statistics moved
  EXPECT_EQ(trained_by(3, net), one);
  EXPECT_EQ(trained_by(4, net), one);
}

}  // namespace
}  // namespace everyo
