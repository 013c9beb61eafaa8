#include "everyo/logging.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, 5> names{"debug", "info", "warning", "error", "off"};

constinit std::atomic<LogLevel> threshold{LogLevel::off};
constinit std::mutex sink_mutex;
constinit thread_local bool in_sink = false;  // this thread holds the mutex

/// Guarded by sink_mutex. Never destroyed, since destructors of static objects may still log.
LogSink& current_sink() {
  static LogSink* const sink = std::make_unique<LogSink>().release();
  return *sink;
}

}  // namespace

std::string_view name_of(LogLevel level) noexcept { return names[static_cast<std::size_t>(level)]; }

void set_log_sink(LogSink sink, LogLevel least) {
  if (in_sink) throw StateError("[set_log_sink] called by the sink itself; a sink cannot be replaced while it runs");
  const std::lock_guard lock(sink_mutex);
  threshold.store(sink ? least : LogLevel::off, std::memory_order_relaxed);
  current_sink() = std::move(sink);
}

bool log_enabled(LogLevel level) noexcept {
  return level >= threshold.load(std::memory_order_relaxed) && level != LogLevel::off;
}

void log(LogLevel level, std::string_view message) noexcept {
  if (!log_enabled(level) || in_sink) return;
  const std::lock_guard lock(sink_mutex);
  const LogSink& sink = current_sink();
  if (!sink) return;
  in_sink = true;
  try {
    sink(level, message);
  } catch (...) {  // a message is not worth the caller's work
  }
  in_sink = false;
}

}  // namespace everyo::inline v1
