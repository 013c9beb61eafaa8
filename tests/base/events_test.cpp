#include "everyo/events.h"

#include <gtest/gtest.h>

#include <thread>

namespace everyo {
namespace {

TEST(Events, ScopeIsRecordedWithItsFigures) {
  EventRecorder recorder;
  {
    Scoped<&Context::events> on(&recorder);
    EventScope outer("step");
    EventScope inner("matmul", EventKind::forward, 64, 128.0);
  }
  { EventScope outside("not seen"); }
  const std::vector<RecordedEvent> events = recorder.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "matmul");
  EXPECT_EQ(events[0].kind, EventKind::forward);
  EXPECT_EQ(events[0].bytes, 64u);
  EXPECT_EQ(events[0].flops, 128.0);
  EXPECT_EQ(events[1].name, "step");
  EXPECT_EQ(events[1].kind, EventKind::other);
  EXPECT_LE(events[1].start, events[0].start);
  EXPECT_LE(events[0].start, events[0].end);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_EQ(events[0].thread, events[1].thread);
  EXPECT_TRUE(recorder.take().empty());
  EXPECT_EQ(recorder.lost(), 0u);
}

TEST(Events, ScopeThatEndsByAnExceptionIsRecorded) {
  EventRecorder recorder;
  try {
    EventScope scope(&recorder, "fails", EventKind::data);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(recorder.take().size(), 1u);
}

TEST(Events, ThreadsRecordTogether) {
  EventRecorder recorder;
  Scoped<&Context::events> on(&recorder);
  const auto work = [snapshot = context()] {
    ContextScope in(snapshot);
    for (int i = 0; i < 500; ++i) EventScope scope("work", EventKind::backward);
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  const std::vector<RecordedEvent> events = recorder.take();
  ASSERT_EQ(events.size(), 1000u);
  std::uint64_t first_thread = events[0].thread, others = 0;
  for (const RecordedEvent& event : events) others += event.thread != first_thread ? 1 : 0;
  EXPECT_EQ(others, 500u);
}

TEST(Events, KindsHaveNames) {
  EXPECT_EQ(name_of(EventKind::forward), "forward");
  EXPECT_EQ(name_of(EventKind::other), "other");
}

}  // namespace
}  // namespace everyo
