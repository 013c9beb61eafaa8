// What users' own ops and hooks may do wrong, or do at an odd moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/ops.h"
#include "support/test_ops.h"

namespace everyo_test {
namespace {
using eo::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// y = x, whose backward gives a gradient of one element, whatever x is.
constexpr eo::Record<> short_gradient_record{
    .name = "test_short_gradient",
    .policy = eo::CastPolicy::follow,
    .infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs { return in[0].spec(); },
    .forward = [](const eo::Call& c,
                  const eo::NoAttrs&) { std::ranges::copy(c.in[0].data<float>(), c.out[0].data<float>().begin()); },
    .backward = [](eo::Backward& b, const eo::NoAttrs&) { b.give(0, Tensor::ones({1})); },
    .cost = [](const eo::Inputs&, const eo::Specs&, const eo::NoAttrs&) { return eo::Cost{}; },
    .onnx = eo::no("a test op"),
    .composed = eo::no("primitive")};

TEST(Robustness, AGradientOfAnotherShapeIsRefused) {
  const Tensor seed = Tensor::ones({100});
  const Tensor x = Tensor::ones({100});
  x.set_requires_grad();
  EXPECT_THAT([&] { eo::apply<short_gradient_record>({}, square(x)).backward({.seed = &seed}); },
              ThrowsMessage<eo::StateError>(HasSubstr("[test_short_gradient] backward gave a gradient of shape (1,)")));
  EXPECT_THAT([&] { eo::apply<short_gradient_record>({}, x).backward({.seed = &seed}); },
              ThrowsMessage<eo::StateError>(HasSubstr("must give its input's spec")));
}

struct Counted {
  static inline int alive = 0;
  static inline bool refuse = false;
  Counted() { ++alive; }
  Counted(const Counted&) {
    if (refuse) throw eo::ValueError("no copy");
    ++alive;
  }
  Counted(Counted&&) noexcept { ++alive; }
  ~Counted() { --alive; }
};
constexpr eo::Record<Counted> counted_record{
    .name = "test_counted",
    .policy = eo::CastPolicy::follow,
    .infer = [](const eo::Inputs& in, const Counted&) -> eo::Specs { return in[0].spec(); },
    .forward = [](const eo::Call& c,
                  const Counted&) { std::ranges::copy(c.in[0].data<float>(), c.out[0].data<float>().begin()); },
    .backward = [](eo::Backward& b, const Counted&) { b.give(0, b.take_grad()); },
    .cost = [](const eo::Inputs&, const eo::Specs&, const Counted&) { return eo::Cost{}; },
    .onnx = eo::no("a test op"),
    .composed = eo::no("primitive")};

TEST(Robustness, AttributesThatCannotBeCopiedAreNotDestroyed) {
  const Tensor x = leaf({1});
  {
    const Counted attrs;
    const Tensor y = eo::apply<counted_record>(attrs, x);
    EXPECT_EQ(Counted::alive, 2);
    Counted::refuse = true;
    EXPECT_THROW(eo::apply<counted_record>(attrs, x), eo::ValueError);
    Counted::refuse = false;
    EXPECT_EQ(Counted::alive, 2);
  }
  EXPECT_EQ(Counted::alive, 0);
}

class Forgetful : public eo::SavedValueHooks {
 public:
  std::shared_ptr<void> pack(const Tensor&) override { return std::make_shared<int>(0); }
  Tensor unpack(const std::shared_ptr<void>&) override { return result; }
  Tensor result;
};

TEST(Robustness, WhatIsUnpackedMustBeWhatWasPacked) {
  const Tensor x = leaf({3});
  Forgetful hooks;
  for (const Tensor& wrong : {Tensor{}, Tensor::ones({2}), Tensor::ones({1}, eo::float64)}) {
    hooks.result = wrong;
    Tensor y;
    {
      const eo::Scoped<&eo::Context::saved> scope(&hooks);
      y = square(square(x));
    }
    EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("something else unpacked")));
  }
}

TEST(Robustness, ABackwardInsideABackwardFiresItsHooks) {
  const Tensor x = leaf({3}), inner = leaf({5});
  std::vector<std::string> order;
  eo::add_ready_hook(inner, [&](const Tensor& t) {
    EXPECT_EQ(t.grad().item(), 10);
    order.push_back("inner ready");
  });
  const Tensor y = scaled(x, 1);
  eo::on_gradient(y, [&](std::span<const Tensor>) {
    const eo::EnableGrad on;
    square(inner).backward({.at_end = [&] { order.push_back("inner end"); }});
  });
  square(y).backward({.at_end = [&] { order.push_back("end"); }});
  EXPECT_EQ(x.grad().item(), 6);
  EXPECT_THAT(order, ElementsAre("inner end", "inner ready", "end"));
}

TEST(Robustness, ABackwardInsideAnEndHookFiresItsHooks) {
  const Tensor x = leaf({3}), other = leaf({5});
  int fired = 0;
  eo::add_ready_hook(other, [&](const Tensor&) { ++fired; });
  eo::on_gradient(scaled(x, 1), [](std::span<const Tensor>) {});
  const Tensor y = square(x);
  eo::on_gradient(y, [&](std::span<const Tensor>) {
    eo::at_backward_end([&] {
      const eo::EnableGrad on;
      square(other).backward();
    });
  });
  y.backward();
  EXPECT_EQ(fired, 1);
}

TEST(Robustness, BackwardHasValuesInsideAMetaScope) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  const eo::MetaScope meta;
  y.backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Robustness, GradientsOfBeforeAWeightWasTiedAreKept) {
  const Tensor w = leaf({1});
  scaled(w, 2).backward();
  w.body()->leaf->use_paths = {11, 22};  // as the first visit of a model that ties it does
  scaled(w, 3).backward();
  EXPECT_EQ(w.grad().item(), 5);
  w.body()->leaf->use_paths = {11, 22, 33};
  eo::ModuleScope third{nullptr, nullptr, "m", 33, false};
  Tensor y;
  {
    const eo::Scoped<&eo::Context::scope> in(&third);
    y = scaled(w, 1);
  }
  w.body()->leaf->use_paths = {11, 22};  // the third place is gone before backward
  w.zero_grad();
  y.backward();
  EXPECT_EQ(w.grad().item(), 1);
}

TEST(Robustness, UndefinedTensorsAreNamed) {
  const Tensor none;
  EXPECT_THAT([&] { (void)none.grad(); }, ThrowsMessage<eo::StateError>(HasSubstr("undefined")));
  EXPECT_THAT([&] { none.zero_grad(); }, ThrowsMessage<eo::StateError>(HasSubstr("undefined")));
  EXPECT_THAT([&] { eo::add_ready_hook(none, [](const Tensor&) {}); },
              ThrowsMessage<eo::StateError>(HasSubstr("no slot")));
  EXPECT_THAT([&] { (void)eo::saved_bytes(none); }, ThrowsMessage<eo::StateError>(HasSubstr("undefined")));
}

TEST(Robustness, WritesThroughAnOutsideViewAreFound) {
  // Opened before forward or after it, closed before backward or not.
  for (const bool early : {true, false}) {
    for (const bool closed : {true, false}) {
      const Tensor x = leaf({1, 2, 3});
      eo::Storage& memory = *x.body()->storage;
      if (early) memory.open_view();
      const Tensor y = eo::sum(square(x));
      if (!early) memory.open_view();
      x.data<float>()[1] = 7;  // as NumPy writes: uncounted
      if (closed) memory.close_view();
      EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("was changed")))
          << "early " << early << ", closed " << closed;
    }
  }
}

TEST(Robustness, AnOutsideViewThatWritesBeforeForwardDoesNoHarm) {
  const Tensor x = leaf({1, 2, 3});
  eo::Storage& memory = *x.body()->storage;
  memory.open_view();
  x.data<float>()[0] = 5;
  const Tensor y = eo::sum(square(x));
  memory.close_view();  // the write counts here, after the value was saved
  y.backward();
  EXPECT_EQ(x.grad().data<float>()[0], 10);
}

TEST(Robustness, WritesToACallersMemoryAreFound) {
  std::array<float, 2> values{3, 4};
  const Tensor x = Tensor::borrow(values.data(), {eo::float32, {2}});
  x.body()->storage->watch_always();
  const Tensor w = leaf({1, 1});
  const Tensor y = eo::sum(eo::multiply(x, w));
  y.backward({.retain_graph = true});
  EXPECT_THAT(w.grad().to_vector(), ElementsAre(3, 4));
  values = {-3, -4};  // two signs: what a sum or a product of words alone would miss
  EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<eo::StateError>(HasSubstr("was changed")));
}

TEST(Robustness, FingerprintsShowEveryBitAndEveryPairOfSigns) {
  std::vector<std::uint64_t> words(9, 0x3f8000003f800000u);  // ones: two rounds of the chains, and a rest
  const Tensor t = Tensor::borrow(words.data(), {eo::int64, {9}});
  const eo::Storage& memory = *t.body()->storage;
  const std::uint64_t before = memory.fingerprint(0, 72);
  const auto flip = [&](std::size_t bit) { words[bit / 64] ^= std::uint64_t{1} << bit % 64; };
  for (std::size_t bit = 0; bit < 72 * 8; ++bit) {
    flip(bit);
    EXPECT_NE(memory.fingerprint(0, 72), before) << "bit " << bit;
    flip(bit);
  }
  for (std::size_t a = 31; a < 72 * 8; a += 32) {
    for (std::size_t b = a + 32; b < 72 * 8; b += 32) {
      flip(a);
      flip(b);
      EXPECT_NE(memory.fingerprint(0, 72), before) << "signs at bits " << a << " and " << b;
      flip(a);
      flip(b);
    }
  }
  EXPECT_NE(memory.fingerprint(0, 70), memory.fingerprint(0, 6));
}

TEST(Robustness, WhatIsNotThereIsNamed) {
  const Tensor x = leaf({3}), seed = Tensor::meta({eo::float32, {1}});
  EXPECT_THAT([&] { square(x).backward({.seed = &seed}); },
              ThrowsMessage<eo::StateError>(HasSubstr("meta tensor has no values")));
  EXPECT_THAT([&] { eo::give_memory(x, {}, 0); }, ThrowsMessage<eo::StateError>(HasSubstr("there is no storage")));
  EXPECT_THAT([&] { eo::restore_storage(x, {}, 0); }, ThrowsMessage<eo::StateError>(HasSubstr("there is no storage")));
  EXPECT_THAT(
      [] {
        (void)Tensor::borrow(nullptr, {eo::float32, {2}});
      },
      ThrowsMessage<eo::ValueError>(HasSubstr("is null")));
}

}  // namespace
}  // namespace everyo_test
