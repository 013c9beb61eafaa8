#include "everyo/context.h"

namespace everyo::inline v1 {
namespace {

constinit thread_local Context thread_context;

}  // namespace

Context& context() noexcept { return thread_context; }

}  // namespace everyo::inline v1
