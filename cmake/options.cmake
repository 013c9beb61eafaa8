# Flags of all our own code, and of the code that runs per element.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_library(everyo_options INTERFACE)
target_compile_options(everyo_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wold-style-cast -Werror)
target_compile_definitions(everyo_options INTERFACE EVERYO_VERSION="${PROJECT_VERSION}")
# No compiler may fuse a product and a sum by itself: the same source would give other bits in a loop's body and in its
# tail. Kernels that want the fused form say so.
target_compile_options(everyo_options INTERFACE -ffp-contract=off)
target_link_options(everyo_options INTERFACE -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
if(EVERYO_SANITIZE)
  target_compile_options(everyo_options INTERFACE -fsanitize=${EVERYO_SANITIZE} -fno-omit-frame-pointer -O1 -g1
                                                  -fno-sanitize-recover=all)
  target_link_options(everyo_options INTERFACE -fsanitize=${EVERYO_SANITIZE})
else()
  target_link_options(everyo_options INTERFACE -Wl,-z,defs)
endif()

# Nothing is compiled for the build machine's processor: Highway compiles each kernel for the baseline, AVX2 and AVX-512
# and one is chosen at run time. The bits are Highway's for SSSE3, SSE4, AVX3_DL, AVX3_ZEN4 and AVX3_SPR, which would
# only lengthen the build; as numbers, since not every version knows every name. With some compilers Highway's baseline
# is plain scalars, with others EMU128, vectors emulated by loops; here it is scalars with each, so that what one build
# tests is what the others run, and since a sanitized EMU128 takes ten times as long to compile as all the rest.
add_library(everyo_kernel_options INTERFACE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  math(EXPR disabled_targets "(1 << 12) | (1 << 11) | (1 << 7) | (1 << 6) | (1 << 4)")
  target_compile_definitions(everyo_kernel_options INTERFACE HWY_DISABLED_TARGETS=${disabled_targets}LL HWY_BROKEN_EMU128=1)
endif()
