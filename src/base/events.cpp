#include "everyo/events.h"

#include <array>
#include <atomic>
#include <exception>
#include <utility>

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, event_kind_count> names{"forward", "backward",   "optimizer", "communication",
                                                               "data",    "checkpoint", "other"};

std::uint64_t thread_number() noexcept {
  static constinit std::atomic<std::uint64_t> next{0};
  static constinit thread_local std::uint64_t number = 0;  // 0: none yet
  if (number == 0) number = next.fetch_add(1, std::memory_order_relaxed) + 1;
  return number - 1;
}

}  // namespace

std::string_view name_of(EventKind kind) noexcept { return names[static_cast<std::size_t>(kind)]; }

EventSink::~EventSink() = default;
EventRecorder::~EventRecorder() = default;

void EventScope::finish() noexcept {
  event_.end = std::chrono::steady_clock::now();
  sink_->record(event_);
}

void EventRecorder::record(const Event& event) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    events_.push_back(
        {std::string(event.name), event.kind, event.start, event.end, event.bytes, event.flops, thread_number()});
  } catch (const std::exception&) {
    ++lost_;
  }
}

std::vector<RecordedEvent> EventRecorder::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::uint64_t EventRecorder::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace everyo::inline v1
