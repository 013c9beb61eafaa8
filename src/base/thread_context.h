#pragma once
#include "everyo/context.h"

namespace everyo::inline v1 {

/// What context() returns, for the files every op runs through: one load instead of a call.
extern constinit thread_local Context thread_context;

}  // namespace everyo::inline v1
