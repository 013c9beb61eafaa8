#pragma once
#include <string>
#include <vector>

#include "everyo/dtype.h"
#include "everyo/isa.h"

// What this machine can do, so that a run's figures can be held against it.
namespace everyo::inline v1 {

/// Versions of the library and of what it was built with, as text.
struct Versions {
  std::string everyo, onednn, highway, compiler;
};
EVERYO_API Versions versions();

/// What is known without measuring.
struct Machine {
  std::string processor;  ///< its model's name; empty when the system does not tell
  int threads = 1;        ///< that a kernel may use here
  Isa detected = Isa::baseline, used = Isa::baseline;
};
EVERYO_API Machine describe_machine();

struct MeasureOptions {
  double seconds = 0.3;  ///< for each figure, at least
};

/// GFLOP/s of matmul at a size that keeps every thread busy, the best of several runs, by dtype.
struct PeakFlops {
  DType dtype;
  double gflops;
};
EVERYO_API std::vector<PeakFlops> measure_peak_flops(const MeasureOptions& options = {});

/// GB/s (10^9 bytes) of a copy far larger than the caches, bytes read and bytes written together; best of several runs.
EVERYO_API double measure_memory_bandwidth(const MeasureOptions& options = {});

}  // namespace everyo::inline v1
