// How long a training step waits for its data, by the number of workers: batches of 32 whose samples take 5 ms each,
// and a step that takes 60 ms beside. One JSON line each.
//
//     build/everyo_loader_wait [STEPS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "everyo/data.h"
#include "everyo/events.h"

namespace {
using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

void measure(std::int32_t workers, int steps) {
  const everyo::ArrayDataset data(everyo::Tensor::zeros({4096, 64}), everyo::Tensor::zeros({4096}, everyo::int64));
  everyo::Loader loader(data, {.batch = 32,
                               .shuffle = true,
                               .transform =
                                   [](everyo::Sample sample, everyo::Generator&) {
                                     std::this_thread::sleep_for(5ms);
                                     return sample;
                                   },
                               .workers = workers});
  loader.next();  // nothing can be ahead of the first
  everyo::EventRecorder recorder;
  const everyo::Scoped<&everyo::Context::events> on(&recorder);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    loader.next();
    std::this_thread::sleep_for(60ms);
  }
  const double all = Seconds(std::chrono::steady_clock::now() - start).count();
  double waiting = 0;
  for (const everyo::RecordedEvent& event : recorder.take())
    if (event.kind == everyo::EventKind::data) waiting += Seconds(event.end - event.start).count();
  std::printf("{\"workers\": %d, \"steps\": %d, \"ms_a_step\": %.2f, \"waiting\": %.4f}\n", workers, steps,
              1000 * all / steps, waiting / all);
}
}  // namespace

int main(int argc, char** argv) {
  try {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 50;
    for (const std::int32_t workers : {0, 1, 2, 4, 8}) measure(workers, steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
