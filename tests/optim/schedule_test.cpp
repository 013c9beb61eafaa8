#include "everyo/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/slots.h"

namespace everyo_test {
namespace {

using eo::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Schedule, Values) {
  const auto step = eo::step_schedule(10, 0.5);
  EXPECT_EQ(step(9), 1);
  EXPECT_EQ(step(10), 0.5);
  EXPECT_EQ(step(25), 0.25);
  const auto cosine = eo::cosine_schedule(100, 0.1);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_NEAR(cosine(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine(100), 0.1, 1e-12);
  EXPECT_NEAR(cosine(1000), 0.1, 1e-12);
  const auto warm = eo::warm_up(4, eo::step_schedule(1, 0.5));
  EXPECT_EQ(warm(0), 0.25);
  EXPECT_EQ(warm(3), 1);
  EXPECT_EQ(warm(4), 1);
  EXPECT_EQ(warm(5), 0.5);
  EXPECT_THROW(eo::cosine_schedule(0), eo::ValueError);
}

TEST(Schedule, GoesOnWhereItStopped) {
  const Tensor p = slot({1});
  eo::SGD opt({p}, {.lr = 1});
  eo::Scheduler scheduler(opt, eo::step_schedule(2, 0.5));
  for (int i = 0; i < 3; ++i) scheduler.step();
  EXPECT_EQ(opt.lr(), 0.5);
  eo::SGD again({p}, {.lr = 7});
  eo::Scheduler resumed(again, eo::step_schedule(2, 0.5));
  resumed.load(scheduler.state());
  EXPECT_EQ(again.lr(), 0.5);
  resumed.step();
  EXPECT_EQ(again.lr(), 0.25);
}

TEST(Schedule, AStateThatDoesNotFitChangesNothing) {
  eo::SGD opt({slot({1})}, {.lr = 0.5});
  eo::Scheduler schedule(opt, eo::step_schedule(1, 0.1));
  eo::StateTree state = schedule.state();
  state["lr"]["0"] = -1.0;
  EXPECT_THAT([&] { schedule.load(state); }, ThrowsMessage<eo::StateError>(HasSubstr("learning rate -1")));
  EXPECT_EQ(opt.lr(), 0.5);
  EXPECT_EQ(schedule.step_count(), 0);
}

}  // namespace
}  // namespace everyo_test
