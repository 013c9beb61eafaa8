#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/context.h"
#include "everyo/export.h"

namespace everyo::inline v1 {

/// What a stretch of time was spent on.
enum class EventKind : std::uint8_t { forward, backward, optimizer, communication, data, checkpoint, other };
inline constexpr std::size_t event_kind_count = 7;

/// "forward", …, "other".
EVERYO_API std::string_view name_of(EventKind kind) noexcept;

using EventTime = std::chrono::steady_clock::time_point;

/// Something that ran from start to end. The name is valid during EventSink::record only.
struct Event {
  std::string_view name;
  EventKind kind = EventKind::other;
  EventTime start, end;
  std::uint64_t bytes = 0;  ///< moved
  double flops = 0;         ///< counted from the shapes
};

/// Takes events as they end, from any thread. Set for a scope by `Scoped<&Context::events> on(&sink);`.
class EVERYO_API EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink();
  virtual void record(const Event& event) noexcept = 0;
};

/// Records its own lifetime as an event; without a sink it costs one branch at either end.
class [[nodiscard]] EventScope {
 public:
  explicit EventScope(std::string_view name, EventKind kind = EventKind::other, std::uint64_t bytes = 0,
                      double flops = 0) noexcept
      : EventScope(context().events, name, kind, bytes, flops) {}
  EventScope(EventSink* sink, std::string_view name, EventKind kind, std::uint64_t bytes = 0, double flops = 0) noexcept
      : sink_(sink) {
    if (sink_ != nullptr) [[unlikely]]
      event_ = {name, kind, std::chrono::steady_clock::now(), {}, bytes, flops};
  }
  ~EventScope() {
    if (sink_ != nullptr) [[unlikely]]
      finish();
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

 private:
  EVERYO_API void finish() noexcept;

  EventSink* sink_;
  Event event_;
};

/// An event that owns its name, with the thread it ran on.
struct RecordedEvent {
  std::string name;
  EventKind kind = EventKind::other;
  EventTime start, end;
  std::uint64_t bytes = 0;
  double flops = 0;
  std::uint64_t thread = 0;  ///< small numbers in the order in which threads first recorded
};

/// Keeps every event, in the order in which they ended.
class EVERYO_API EventRecorder final : public EventSink {
 public:
  EventRecorder() = default;
  ~EventRecorder() override;
  void record(const Event& event) noexcept override;
  /// What was recorded so far; the recorder starts again.
  std::vector<RecordedEvent> take();
  /// Events that did not fit into memory.
  [[nodiscard]] std::uint64_t lost() const;

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedEvent> events_;
  std::uint64_t lost_ = 0;
};

}  // namespace everyo::inline v1
