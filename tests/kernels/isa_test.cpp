#include "kernels/isa.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "everyo/error.h"
#include "everyo/isa.h"

namespace everyo::kernels {
namespace {

TEST(KernelIsa, HighwayRunsWhatIsReported) {
  use_isa();
#if HWY_ARCH_X86
  const std::int64_t targets = hwy::SupportedTargets();
  EXPECT_EQ((targets & HWY_AVX3) != 0, isa() >= Isa::avx512);
  EXPECT_EQ((targets & HWY_AVX2) != 0, isa() >= Isa::avx2);
#endif
}

TEST(KernelIsa, BadEnvironmentIsReportedBeforeAnOp) {
  EXPECT_EXIT(
      {
        isa_is_applied.store(false);  // as at the start of a process
        setenv("EVERYO_ISA", "mmx", 1);
        use_isa();
        EXPECT_FALSE(isa_applied());
        EXPECT_THROW(require_isa(), ValueError);
        unsetenv("EVERYO_ISA");
        require_isa();
        EXPECT_TRUE(isa_applied());
        _exit(HasFailure() ? 1 : 0);  // what threads of the parent kept is no leak of the child
      },
      testing::ExitedWithCode(0), "");
}

TEST(KernelIsa, EnvironmentIsObeyed) {
  const char* name = std::getenv("EVERYO_ISA");
  EXPECT_EQ(isa(), name == nullptr || *name == '\0' ? detected_isa() : std::min(isa_of(name), detected_isa()));
}

TEST(KernelIsa, CapComesTooLateAfterAKernel) {
  use_isa();
  EXPECT_NO_THROW(cap_isa(isa()));
  if (isa() == Isa::baseline) return;
  EXPECT_THROW(cap_isa(Isa::baseline), StateError);
}

}  // namespace
}  // namespace everyo::kernels
