#include "base/isa.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "everyo/error.h"

namespace everyo {
namespace {

/// The cap holds for a process, so each test of it has a process of its own.
template <class F>
void in_own_process(F&& body) {
  EXPECT_EXIT(
      {
        body();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Isa, NamesReadBack) {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::avx512_fp16, Isa::amx}) {
    EXPECT_EQ(isa_of(name_of(isa)), isa);
  }
  EXPECT_THROW(
      try { isa_of("sse9"); } catch (const ValueError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("baseline, avx2, avx512, avx512_bf16, avx512_fp16, amx"));
        throw;
      },
      ValueError);
}

#if defined(__x86_64__)
// What Linux tells of the processor is found by other means than ours.
TEST(Isa, DetectedIsWhatTheSystemTells) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && !flags.starts_with("flags")) {
  }
  if (flags.empty()) GTEST_SKIP() << "no /proc/cpuinfo";
  const auto has = [&](std::string_view name) { return (flags + " ").find(fmt::format(" {} ", name)) != flags.npos; };
  EXPECT_EQ(detected_isa() >= Isa::avx2, has("avx2"));
  EXPECT_EQ(detected_isa() >= Isa::avx512, has("avx512vl"));
  EXPECT_EQ(detected_isa() >= Isa::avx512_bf16, has("avx512_bf16"));
  EXPECT_EQ(detected_isa() >= Isa::avx512_fp16, has("avx512_fp16"));
  EXPECT_TRUE(detected_isa() < Isa::amx || has("amx_bf16"));  // the system may refuse what the processor has
}
#endif

TEST(Isa, EnvironmentCaps) {
  in_own_process([] {
    setenv("EVERYO_ISA", "baseline", 1);
    EXPECT_EQ(isa(), Isa::baseline);
    setenv("EVERYO_ISA", "avx512", 1);
    EXPECT_EQ(isa(), std::min(Isa::avx512, detected_isa()));
    setenv("EVERYO_ISA", "amx", 1);
    EXPECT_EQ(isa(), detected_isa());
    setenv("EVERYO_ISA", "", 1);
    EXPECT_EQ(isa(), detected_isa());
  });
}

TEST(Isa, EnvironmentIsChecked) {
  in_own_process([] {
    setenv("EVERYO_ISA", "AVX-9", 1);
    EXPECT_THROW(
        try { isa(); } catch (const ValueError& error) {
          EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("AVX-9"), testing::HasSubstr("EVERYO_ISA"),
                                                   testing::HasSubstr("avx2")));
          throw;
        },
        ValueError);
    EXPECT_THROW(cap_isa(Isa::baseline), ValueError);
    EXPECT_THROW(base::freeze_isa(), ValueError);
    unsetenv("EVERYO_ISA");
    EXPECT_NO_THROW(cap_isa(Isa::baseline));  // nothing was fixed by the failure
  });
}

TEST(Isa, CapHoldsUntilTheFirstKernel) {
  in_own_process([] {
    unsetenv("EVERYO_ISA");
    cap_isa(Isa::baseline);
    EXPECT_EQ(isa(), Isa::baseline);
    cap_isa(Isa::avx2);
    const Isa used = std::min(Isa::avx2, detected_isa());
    EXPECT_EQ(base::freeze_isa(), used);
    EXPECT_NO_THROW(cap_isa(Isa::avx2));
    EXPECT_EQ(isa(), used);
    if (used == Isa::baseline) return;
    EXPECT_THROW(cap_isa(Isa::baseline), StateError);
    EXPECT_EQ(isa(), used);
  });
}

}  // namespace
}  // namespace everyo
