#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// How much a message matters, least first. `off` is for thresholds: no message has it.
enum class LogLevel : std::uint8_t { debug, info, warning, error, off };

/// "debug", …, "off".
EVERYO_API std::string_view name_of(LogLevel level) noexcept;

/// Takes a message, without line end. Called from any thread, one call at a time; what it throws is dropped, and what
/// is logged inside it too.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Sends messages of `least` and above to `sink`, in place of the sink before. The library itself never prints: until a
/// sink is set, and after an empty one is, messages go nowhere. No call of the old sink is running on return. Throws
/// StateError when a sink calls it.
EVERYO_API void set_log_sink(LogSink sink, LogLevel least = LogLevel::info);

/// Whether a message of this level would reach a sink; to save the making of one that would not.
EVERYO_API bool log_enabled(LogLevel level) noexcept;

EVERYO_API void log(LogLevel level, std::string_view message) noexcept;

}  // namespace everyo::inline v1
