#pragma once
#include "everyo/isa.h"

namespace everyo::base {

/// isa(), from now on fixed: called before the first kernel runs.
Isa freeze_isa();

}  // namespace everyo::base
