#include "everyo/context.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace everyo {
namespace {

TEST(Context, ScopesNestAndRestore) {
  EXPECT_TRUE(context().grad);
  {
    NoGrad off;
    EXPECT_FALSE(context().grad);
    {
      EnableGrad on;
      EXPECT_TRUE(context().grad);
    }
    EXPECT_FALSE(context().grad);
  }
  EXPECT_TRUE(context().grad);
}

TEST(Context, ScopesRestoreOnExceptions) {
  try {
    MetaScope meta;
    ThreadLimit limit(3);
    EXPECT_TRUE(context().meta);
    EXPECT_EQ(context().threads, 3);
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(context().meta);
  EXPECT_EQ(context().threads, 0);
}

TEST(Context, EachThreadHasItsOwn) {
  NoGrad off;
  bool other = false;
  std::thread([&] { other = context().grad; }).join();
  EXPECT_TRUE(other);
}

TEST(Context, SnapshotIsCarriedIntoAThread) {
  NoGrad off;
  Scoped<&Context::seed> seed(9);
  bool inside = true, after = false;
  std::uint64_t carried = 0;
  std::thread([&, snapshot = context()] {
    {
      ContextScope in(snapshot);
      inside = context().grad;
      carried = context().seed;
    }
    after = context().grad;
  }).join();
  EXPECT_FALSE(inside);
  EXPECT_EQ(carried, 9u);
  EXPECT_TRUE(after);
}

TEST(Context, ClockIsNeverTurnedBack) {
  const Context snapshot = context();
  const std::uint64_t before = context().engine.clock;
  {
    ContextScope in(snapshot);
    context().engine.clock += 5;
    ++context().engine.walks;
  }
  EXPECT_EQ(context().engine.clock, before + 5);
  EXPECT_EQ(context().engine.walks, snapshot.engine.walks + 1);
  ContextScope again(snapshot);
  EXPECT_EQ(context().engine.clock, before + 5);
}

TEST(Context, ModulePathIsTheStackOfNames) {
  EXPECT_EQ(module_path(), "");
  const ModuleScope outermost{.module = nullptr, .parent = nullptr, .name = "", .path_hash = 0, .stamped = false};
  const ModuleScope block{
      .module = nullptr, .parent = &outermost, .name = "blocks.0", .path_hash = 1, .stamped = false};
  const ModuleScope up{.module = nullptr, .parent = &block, .name = "up", .path_hash = 2, .stamped = false};
  Scoped<&Context::scope> in(&up);
  EXPECT_EQ(module_path(), "blocks.0.up");
}

}  // namespace
}  // namespace everyo
