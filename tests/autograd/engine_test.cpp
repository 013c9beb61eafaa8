#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "everyo/autograd.h"
#include "everyo/events.h"
#include "support/test_ops.h"

namespace everyo_test {
namespace {
using eo::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Engine, SumsGradientsOfAllUses) {
  const Tensor x = leaf({2, 3});
  const Tensor y = plus(square(x), scaled(x, 10));
  const Tensor ones = Tensor::ones({2});
  y.backward({.seed = &ones});
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(14, 16));
}

TEST(Engine, ADiamondIsWalkedOnce) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  const Tensor z = plus(square(y), square(y));  // 2 x^4
  z.backward();
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(8 * 27));
}

TEST(Engine, GradientsAddUpUntilCleared) {
  const Tensor x = leaf({3});
  scaled(x, 2).backward();
  scaled(x, 5).backward();
  EXPECT_EQ(x.grad().item(), 7);
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  scaled(x, 4).backward();
  EXPECT_EQ(x.grad().item(), 4);
}

TEST(Engine, AHeldGradientSurvivesTheNextStep) {
  const Tensor x = leaf({3});
  scaled(x, 2).backward();
  const Tensor held = x.grad();
  x.zero_grad();
  scaled(x, 5).backward();
  EXPECT_EQ(held.item(), 2);
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Engine, SaysWhatIsMissing) {
  const Tensor plain = Tensor::ones({2});
  EXPECT_THAT([&] { plain.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("does not require gradients")));
  const Tensor x = leaf({1, 2});
  EXPECT_THAT([&] { square(x).backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("explicit gradient")));
  const Tensor seed = Tensor::ones({3});
  EXPECT_THAT([&] { square(x).backward({.seed = &seed}); }, ThrowsMessage<eo::StateError>(HasSubstr("seed shape")));
  EXPECT_THAT([&] { Tensor::from<std::int64_t>({1}).set_requires_grad(); },
              ThrowsMessage<eo::StateError>(HasSubstr("floating point")));
}

TEST(Engine, AGraphIsWalkedTwiceOnlyWhenRetained) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  y.backward({.retain_graph = true});
  y.backward();
  EXPECT_EQ(x.grad().item(), 12);
  EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<eo::StateError>(
                                         HasSubstr("[backward] the graph was freed at test_square; use retain_graph")));
}

TEST(Engine, AChangeBetweenForwardAndBackwardIsRefused) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  x.assign(Tensor::from({4.0f}));
  EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("changed between forward and backward "
                                                                             "(version 0, now 1)")));
  const Tensor a = scaled(x, 1), b = square(a);
  a.write<float>()[0] = 7;
  EXPECT_THAT([&] { b.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("changed in place")));
  x.zero_grad();
  square(x).backward();  // the failed walks left nothing behind
  EXPECT_EQ(x.grad().item(), 8);
}

TEST(Engine, NoGradAndDetachStopTheGraph) {
  const Tensor x = leaf({3});
  {
    const eo::NoGrad off;
    EXPECT_FALSE(square(x).requires_grad());
    const eo::EnableGrad on;
    EXPECT_TRUE(square(x).requires_grad());
  }
  EXPECT_FALSE(square(x).detach().requires_grad());
  const Tensor y = plus(square(x), square(square(x).detach()));
  y.backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Engine, WalksAndDropsAChainOfAHundredThousandNodes) {
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = scaled(y, 1);
    y.backward();
    EXPECT_EQ(x.grad().item(), 1);
  }
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = scaled(y, 1);  // dropped without a walk
}

TEST(Engine, TakesAnyNumberOfInputsAndOutputs) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 100; ++i) leaves.push_back(leaf({static_cast<float>(i)}));
  const Tensor total = eo::apply_list<add_all_record>({}, leaves);
  EXPECT_EQ(total.item(), 4950);
  total.backward();
  for (const Tensor& each : leaves) EXPECT_EQ(each.grad().item(), 1);

  const Tensor x = leaf({0, 1, 2, 3, 4, 5, 6});
  const Tensor* in[] = {&x};
  const eo::NoAttrs none;
  const std::vector<Tensor> parts = eo::apply_all(eo::op_of<unbind_record>, &none, in);
  ASSERT_EQ(parts.size(), 7u);
  plus(scaled(parts[1], 2), scaled(parts[6], 3)).backward();
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(0, 2, 0, 0, 0, 0, 3));
}

TEST(Engine, ASlotLivesInMemoryFromOutside) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const eo::Ref<eo::Storage> bucket = eo::Storage::take(16, eo::MemoryCategory::communication);
  eo::give_memory(a, bucket, 0);
  eo::give_memory(b, bucket, 8);
  const Tensor ones = Tensor::ones({2});
  for (int step = 0; step < 2; ++step) {
    a.zero_grad();
    b.zero_grad();
    plus(square(a), scaled(b, 5)).backward({.seed = &ones});
    const auto* values = reinterpret_cast<const float*>(bucket->data());
    EXPECT_THAT(std::vector(values, values + 4), ElementsAre(2, 4, 5, 5));
  }
  EXPECT_THAT([&] { eo::give_memory(a, bucket, 12); }, ThrowsMessage<eo::ShapeError>(HasSubstr("do not fit")));
  EXPECT_THAT([&] { eo::give_memory(ones, bucket, 0); }, ThrowsMessage<eo::StateError>(HasSubstr("no slot")));
}

TEST(Engine, ReadyHooksFireWhileTheRestStillRuns) {
  const Tensor first = leaf({1}), last = leaf({1}), unused = leaf({1});
  std::vector<std::string> order;
  eo::add_ready_hook(first, [&](const Tensor&) { order.push_back("first"); });
  const std::uint64_t number = eo::add_ready_hook(last, [&](const Tensor& t) {
    EXPECT_EQ(t.grad().item(), 1);
    order.push_back("last");
  });
  const Tensor y = square(first);
  eo::on_gradient(y, [&](std::span<const Tensor> g) {
    EXPECT_EQ(g[0].item(), 1);
    order.push_back("before y");
  });
  plus(y, last).backward({.at_end = [&] { order.push_back("end"); }});
  EXPECT_THAT(order, ElementsAre("last", "before y", "first", "end"));
  eo::remove_ready_hook(last, number);
  order.clear();
  plus(first, last).backward();
  EXPECT_THAT(order, ElementsAre("first"));
}

TEST(Engine, EndHooksRunOnceWhenEveryGradientIsThere) {
  const Tensor a = leaf({1}), b = leaf({2});
  int runs = 0;
  eo::add_ready_hook(b, [&](const Tensor&) {
    eo::at_backward_end([&] {
      ++runs;
      EXPECT_EQ(a.grad().item(), 4);
    });
  });
  plus(b, square(square(a))).backward();  // b is ready first
  EXPECT_EQ(runs, 1);
  EXPECT_THAT([] { eo::at_backward_end([] {}); }, ThrowsMessage<eo::StateError>(HasSubstr("no backward is running")));
}

TEST(Engine, AHookThatThrowsLeavesTheGraphUsable) {
  const Tensor x = leaf({1});
  const std::uint64_t number = eo::add_ready_hook(x, [](const Tensor&) { throw eo::ValueError("stop"); });
  EXPECT_THROW(square(x).backward(), eo::ValueError);
  eo::remove_ready_hook(x, number);
  x.zero_grad();
  square(x).backward();
  EXPECT_EQ(x.grad().item(), 2);
}

TEST(Engine, BackwardMayRunInsideBackward) {
  const Tensor x = leaf({3}), inner = leaf({5});
  const Tensor y = scaled(x, 1);
  int ended = 0;
  eo::on_gradient(y, [&](std::span<const Tensor>) {
    const eo::EnableGrad on;
    square(inner).backward({.at_end = [&] { ++ended; }});
  });
  square(y).backward();
  EXPECT_EQ(x.grad().item(), 6);
  EXPECT_EQ(inner.grad().item(), 10);
}

TEST(Engine, ASinkTakesTheGradientsOfOneShard) {
  const Tensor x = leaf({1, 2, 3});
  constexpr int shards = 8;
  std::vector<eo::GradientSink> sinks(shards);
  std::vector<std::thread> threads;
  for (int s = 0; s < shards; ++s)
    threads.emplace_back([&, s, snapshot = eo::context()] {
      const eo::ContextScope in(snapshot);
      const eo::Scoped<&eo::Context::gradients> sink(&sinks[static_cast<std::size_t>(s)]);
      const Tensor ones = Tensor::ones({3});
      scaled(square(x), static_cast<float>(s)).backward({.seed = &ones});
    });
  for (auto& t : threads) t.join();
  EXPECT_FALSE(x.grad().defined());
  for (int s = 0; s < shards; ++s) {
    const auto got = sinks[static_cast<std::size_t>(s)].gradients();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_THAT(got[0].second.to_vector(), ElementsAre(2 * s, 4 * s, 6 * s));
  }
}

TEST(Engine, ATiedWeightKeepsOneAccumulatorAPlaceOfUse) {
  // Two places, 1e8 and 1 twice: per place 2e8 and 2, so the sum keeps the 2 that adding one by one would lose
  // bits of. What matters is the order: each place over all micro-batches first, then the places.
  const Tensor w = leaf({1});
  w.body()->leaf->use_paths = {11, 22};
  const auto use_at = [&](std::uint64_t path, float by) {
    eo::ModuleScope scope{nullptr, nullptr, "m", path, false};
    const eo::Scoped<&eo::Context::scope> in(&scope);
    return scaled(w, by);
  };
  const float a = 1.0e8f, b = 3.0f;
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) plus(use_at(22, b), use_at(11, a)).backward();
  const float expected = (a + a + a) + (b + b + b);
  EXPECT_EQ(static_cast<float>(w.grad().item()), expected);
  EXPECT_EQ(w.body()->leaf->grad.uses.size(), 2u);
  // A sum changed from outside is what later gradients add to.
  w.grad().write<float>()[0] = 5;
  use_at(22, b).backward();
  EXPECT_EQ(w.grad().item(), 8);
  w.zero_grad();
  use_at(22, b).backward();
  EXPECT_EQ(w.grad().item(), 3);
}

TEST(Engine, AReleasedSlotComesBackWithItsVersion) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  eo::Ref<eo::Storage> held = x.body()->storage;
  eo::release_storage(x);
  EXPECT_THAT([&] { square(x); }, ThrowsMessage<eo::StateError>(HasSubstr("is released; restore it before forward")));
  EXPECT_THAT([&] { y.backward(); },
              ThrowsMessage<eo::StateError>(HasSubstr("is released; restore it before backward")));
  eo::restore_storage(x, held);
  y.backward();
  EXPECT_EQ(x.grad().item(), 6);
  const Tensor z = square(x);
  x.write<float>()[0] = 4;
  eo::release_storage(x);
  eo::restore_storage(x, eo::Storage::take(4, eo::MemoryCategory::parameter));
  EXPECT_THAT([&] { z.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("changed between")));
}

class Doubling : public eo::SavedValueHooks {  // keeps values as doubles and counts
 public:
  std::shared_ptr<void> pack(const Tensor& value) override {
    ++packed;
    return std::make_shared<std::vector<double>>(value.to_vector());
  }
  Tensor unpack(const std::shared_ptr<void>& p) override {
    ++unpacked;
    const auto& values = *std::static_pointer_cast<std::vector<double>>(p);
    const Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())});
    std::ranges::transform(values, t.data<float>().begin(), [](double v) { return static_cast<float>(v); });
    return t;
  }
  int packed = 0, unpacked = 0;
};

TEST(Engine, SavedValuesMayBePacked) {
  const Tensor x = leaf({3});
  Doubling hooks;
  Tensor y;
  {
    const eo::Scoped<&eo::Context::saved> scope(&hooks);
    y = square(square(x));  // the first saves a slot, the second a value
  }
  EXPECT_EQ(hooks.packed, 1);
  EXPECT_EQ(eo::saved_bytes(y), 0u);
  y.backward();
  EXPECT_EQ(hooks.unpacked, 1);
  EXPECT_EQ(x.grad().item(), 4 * 27);
  EXPECT_EQ(eo::saved_bytes(square(square(x))), 4u);
}

TEST(Engine, TheTracerSeesEveryCall) {
  eo::Tracer tracer;
  const Tensor x = leaf({3});
  {
    const eo::Scoped<&eo::Context::tracer> scope(&tracer);
    scaled(square(x), 2);
  }
  square(x);
  ASSERT_EQ(tracer.steps.size(), 2u);
  EXPECT_STREQ(tracer.steps[1].op->name, "test_scale");
  EXPECT_EQ(static_cast<const ScaleAttrs*>(tracer.steps[1].attrs.get())->by, 2);
  EXPECT_EQ(tracer.steps[1].in[0].body(), tracer.steps[0].out[0].body());
}

TEST(Engine, EventsNameEveryCallWithItsWork) {
  eo::EventRecorder recorder;
  const Tensor x = leaf({1, 2, 3});
  const Tensor ones = Tensor::ones({3});
  {
    const eo::Scoped<&eo::Context::events> scope(&recorder);
    square(x).backward({.seed = &ones});
  }
  scaled(x, 2);
  const auto events = recorder.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "test_square");
  EXPECT_EQ(events[0].kind, eo::EventKind::forward);
  EXPECT_EQ(events[0].flops, 3);
  EXPECT_EQ(events[0].bytes, 24u);
  EXPECT_EQ(events[1].kind, eo::EventKind::backward);
  EXPECT_LE(events[1].start, events[1].end);
}

TEST(Engine, AMetaRunInfersOnly) {
  const eo::MetaScope meta;
  const Tensor x = Tensor::empty({4, 5}).set_requires_grad();
  const Tensor y = square(x);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.shape(), eo::Shape({4, 5}));
  EXPECT_THAT([&] { (void)y.item(); }, ThrowsMessage<eo::ValueError>(HasSubstr("exactly one element")));
}

TEST(Engine, AnUndefinedInputIsNamed) {
  EXPECT_THAT([] { square(Tensor{}); },
              ThrowsMessage<eo::StateError>(HasSubstr("[test_square] input 0 is an undefined")));
}

}  // namespace
}  // namespace everyo_test
