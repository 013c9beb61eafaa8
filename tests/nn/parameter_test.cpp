#include "everyo/nn/parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/memory.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing_nn::bits;
using testing_nn::error_of;

static_assert(std::is_nothrow_move_constructible_v<Parameter> && std::is_nothrow_move_assignable_v<Parameter>);
static_assert(!std::is_copy_assignable_v<Parameter> && !std::is_copy_assignable_v<Buffer>);

TEST(Parameter, IsALeafThatWantsAGradientAndKnowsItsSeed) {
  const auto before = memory::report()[MemoryCategory::parameter].now;
  const Parameter p({3, 4}, {.initializer = "he_uniform", .seed = 5});
  EXPECT_TRUE(p.tensor().requires_grad());
  EXPECT_TRUE(p.tensor().is_leaf());
  const Leaf& leaf = *p.tensor().body()->leaf;
  EXPECT_TRUE(leaf.parameter);
  EXPECT_EQ(leaf.seed, 5u);
  EXPECT_EQ(leaf.owners, 1);
  EXPECT_GE(memory::report()[MemoryCategory::parameter].now, before + 48);
}

TEST(Parameter, WithoutASeedTwoDiffer) {
  const Parameter a({4, 4}, {.initializer = "he_uniform"}), b({4, 4}, {.initializer = "he_uniform"});
  EXPECT_NE(bits(a), bits(b));  // equal with a chance of 2^-64
}

TEST(Parameter, CopyOutsideCloneSaysWhatToDo) {
  const Parameter p({4, 4}, {.seed = 1});
  p.tensor().body()->leaf->name = "stem.weight";
  const auto copy = [&] { const Parameter q(p); };
  EXPECT_EQ(error_of(copy),
            "[Parameter] 'stem.weight' (4, 4) copied outside clone(); use clone() for a copy, tie() to "
            "share, std::move to hand over");
  const Buffer b({3}, 0);
  EXPECT_THAT(error_of([&] { const Buffer c(b); }), HasSubstr("[Buffer] (3,) copied outside clone()"));
  const auto captured = [&] {
    (void)[p] { return p.shape(); };
  };
  EXPECT_THROW(captured(), StateError);
}

TEST(Parameter, VectorsGrowByMoving) {
  std::vector<Parameter> list;
  for (std::uint64_t i = 0; i < 9; ++i) list.emplace_back(Shape{2}, Init{.seed = i});
  for (const Parameter& p : list) EXPECT_EQ(p.tensor().body()->leaf->owners, 1);
}

TEST(Parameter, OwnersAreCounted) {
  Parameter a({2}, {.seed = 1});
  const Tensor slot = a;
  const std::int32_t& owners = slot.body()->leaf->owners;
  EXPECT_EQ(owners, 1);
  {
    const Parameter tied = a.tie();
    EXPECT_EQ(owners, 2);
    EXPECT_EQ(tied.tensor().body(), slot.body());
  }
  EXPECT_EQ(owners, 1);
  Parameter moved = std::move(a);
  EXPECT_EQ(owners, 1);
  moved = Parameter({2}, {.seed = 2});
  EXPECT_EQ(owners, 0);
  EXPECT_EQ(moved.tensor().body()->leaf->owners, 1);
  auto& self = moved;
  moved = std::move(self);
  EXPECT_EQ(moved.tensor().body()->leaf->owners, 1);
  EXPECT_THROW((void)Parameter().tie(), StateError);
}

TEST(Parameter, MoveAssignmentKeepsThePlacesNameUnlessShared) {
  Parameter place({2}, {.seed = 1});
  place.tensor().body()->leaf->name = "head.weight";
  place = Parameter({3}, {.seed = 2});
  EXPECT_EQ(place.name(), "head.weight");
  const Parameter other({2}, {.seed = 1});
  other.tensor().body()->leaf->name = "stem.weight";
  place = other.tie();
  EXPECT_EQ(place.name(), "stem.weight");
}

TEST(Parameter, CloneScopeKeepsTiesAndWhatTheLeafKnows) {
  const Parameter a({2, 2}, {.initializer = "he_normal", .seed = 4, .dtype = float64});
  const Parameter tied = a.tie();
  a.tensor().body()->leaf->name = "a";
  a.tensor().set_requires_grad(false);
  const CloneScope scope;
  const Parameter b(a), c(tied);
  EXPECT_EQ(b.tensor().body(), c.tensor().body());
  EXPECT_NE(b.tensor().body(), a.tensor().body());
  EXPECT_EQ(bits(b), bits(a));
  EXPECT_EQ(b.name(), "a");
  EXPECT_EQ(b.tensor().body()->leaf->owners, 2);
  EXPECT_EQ(b.tensor().body()->leaf->seed, 4u);
  EXPECT_FALSE(b.tensor().requires_grad());
  EXPECT_TRUE(b.tensor().body()->leaf->initialise);
}

TEST(Parameter, OfCopiesItsValues) {
  const Tensor values = Tensor::from<float>({1, 2, 3});
  const Parameter p = Parameter::of(values);
  values.write<float>()[0] = 9;
  EXPECT_EQ(p.tensor().to_vector(), (std::vector<double>{1, 2, 3}));
  EXPECT_THROW((void)Parameter::of(Tensor::from<std::int64_t>({1})), DTypeError);
}

TEST(Buffer, PostBlendsAtOnceNeverOrLater) {
  const Buffer b = Buffer::of(Tensor::from<float>({1, 2}));
  const Tensor seen = Tensor::from<float>({3, 6});
  {
    const Scoped<&Context::recompute> again(true);
    b.post(seen, 0.5);
  }
  EXPECT_EQ(b.tensor().to_vector(), (std::vector<double>{1, 2}));
  b.post(seen, 0.5);
  EXPECT_EQ(b.tensor().to_vector(), (std::vector<double>{2, 4}));
  BufferUpdates updates[1];
  {
    const Scoped<&Context::buffers> queue(&updates[0]);
    b.post(seen, 0.25);
  }
  EXPECT_EQ(b.tensor().to_vector(), (std::vector<double>{2, 4}));
  ASSERT_EQ(updates[0].updates().size(), 1u);
  apply_updates(updates);
  EXPECT_EQ(b.tensor().to_vector(), (std::vector<double>{2.25, 4.5}));
  EXPECT_TRUE(updates[0].updates().empty());
}

TEST(Buffer, ShardsAreAveragedByATreeOverTheirOrder) {
  // In float32, 1e8 + 1 - 1e8 + 1 is 1 from left to right, 0 in pairs.
  const Buffer b({1}, 0);
  std::vector<BufferUpdates> shards(5);  // the last shard saw no rows
  const float observed[] = {1e8F, 1, -1e8F, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    const Scoped<&Context::buffers> queue(&shards[i]);
    b.post(Tensor::from<float>({observed[i]}), 1);
  }
  apply_updates(shards);
  EXPECT_EQ(b.tensor().item(), 0);
  // Three shards: (a + b) + c, then a third.
  const float three[] = {1, 2, 6};
  for (std::size_t i = 0; i < 3; ++i) shards[i].add({b, Tensor::from<float>({three[i]}), 1});
  apply_updates(std::span(shards).first(3));
  EXPECT_EQ(b.tensor().item(), 3);
}

TEST(Buffer, WrongUpdatesAreRefused) {
  const Buffer a({2}, 0), b({2}, 0);
  EXPECT_THAT(error_of([&] { a.post(Tensor::zeros({3}), 1); }), HasSubstr("observed float32 (3,)"));
  EXPECT_THROW(a.post(Tensor::zeros({2}, float64), 1), DTypeError);
  EXPECT_THROW(Buffer({2}, 0, int64).post(Tensor::zeros({2}, int64), 1), DTypeError);
  BufferUpdates shards[2];
  shards[0].add({a, Tensor::zeros({2}), 1});
  shards[1].add({b, Tensor::zeros({2}), 1});
  EXPECT_THAT(error_of([&] { apply_updates(shards); }), HasSubstr("different buffers"));
}

TEST(Parameter, AMovedFromOneThrows) {
  Parameter p({3}, {.seed = 1});
  const Parameter q = std::move(p);
  EXPECT_THROW((void)p.shape(), StateError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW((void)p.dtype(), StateError);
  EXPECT_THROW((void)p.grad(), StateError);
  EXPECT_EQ(p.name(), "");
}

}  // namespace
}  // namespace everyo
