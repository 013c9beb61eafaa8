#include <fmt/format.h>

#include "base/thread_context.h"
#include "everyo/error.h"
#include "everyo/precision.h"

namespace everyo::inline v1 {

Autocast::Autocast(DType dtype) : was_on_(thread_context.autocast), was_dtype_(thread_context.autocast_dtype) {
  if (!is_half(dtype))
    throw DTypeError(
        fmt::format("[autocast] {} is no floating half; give float16 or bfloat16, or Autocast(false)", name_of(dtype)));
  thread_context.autocast = true;
  thread_context.autocast_dtype = dtype;
}

Autocast::Autocast(bool on) noexcept : was_on_(thread_context.autocast), was_dtype_(thread_context.autocast_dtype) {
  thread_context.autocast = on;
}

Autocast::~Autocast() {
  thread_context.autocast = was_on_;
  thread_context.autocast_dtype = was_dtype_;
}

}  // namespace everyo::inline v1
