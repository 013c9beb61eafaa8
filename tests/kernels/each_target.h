#pragma once
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "kernels/isa.h"

namespace everyo {

/// Runs a test body once for every instruction set that was compiled and that this machine (and EVERYO_ISA) allows.
template <class Body>
void for_each_target(Body&& body) {
  kernels::apply_isa();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace everyo
