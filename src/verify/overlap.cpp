#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "verify/ranks.h"
#include "verify/topics.h"

// D10: gradients are exchanged while backward still computes others.
namespace everyo::verify_room {
namespace {

constexpr std::int64_t rows = 128, width = 256;
constexpr int steps = 8;
constexpr std::size_t one_layer = 526'400;  // bytes: a weight of 256 x 512 and its bias, not the next bias, too

struct Overlap {
  double buckets = 0, early = 0;                 // of the last step
  double exposed = 0, step = 0, afterwards = 0;  // seconds, the least of all steps; all at once after backward
};

Overlap overlap_of(Ranks ranks, std::size_t bucket_bytes) {
  const auto all = on_ranks(ranks, 2, [&](ProcessGroup& group) {
    Sequential net(Linear(width, 512, {.seed = 0}), ReLU(), Linear(512, width, {.seed = 1}), ReLU(),
                   Linear(width, 512, {.seed = 2}), ReLU(), Linear(512, width, {.seed = 3}));
    DataParallel parallel(net, group, {.bucket_bytes = bucket_bytes});
    const Tensor x = Tensor::ones({rows, width});
    double exposed = 1e9, step = 1e9, afterwards = 1e9;
    const auto seconds = [](const auto& body) {
      const auto start = base::Clock::now();
      body();
      return base::seconds_since(start);
    };
    for (int i = 0; i < steps; ++i) {
      net.zero_grad();
      step = std::min(step, seconds([&] { mean(power(net(x), 2)).backward(); }));
      exposed = std::min(exposed, parallel.times().exposed);
    }
    for (int i = 0; i < steps; ++i)
      afterwards = std::min(afterwards, seconds([&] { average_gradients(net.parameters(), group); }));
    return std::vector{static_cast<double>(parallel.times().buckets), static_cast<double>(parallel.times().early),
                       exposed, step, afterwards};
  });
  const std::vector<double>& first = all[0];
  return {first[0], first[1], first[2], first[3], first[4]};
}

}  // namespace

void add_overlap_checks(Checks& checks, const Figures& figures) {
  for (const Ranks ranks : {Ranks::threads, Ranks::processes}) {
    const auto times = std::make_shared<Overlap>();
    checks.push_back(
        {.requirement = "D10",
         .what = fmt::format("buckets, and those under way before the last gradient was computed: {}", name_of(ranks)),
         .figure = figures.at("overlap"),
         .measure =
             [=](bool sabotaged) {
               const Overlap found = overlap_of(ranks, sabotaged ? std::size_t{1} << 30 : one_layer);
               if (!sabotaged) *times = found;
               return std::vector{found.buckets, found.early};
             },
         .sabotage = "all gradients are exchanged at once",
         .columns = {"buckets", "early"},
         .remark =
             [=] {
               return fmt::format("{:.0f} µs exposed of a step of {:.0f} µs; exchanged after backward: {:.0f} µs",
                                  1e6 * times->exposed, 1e6 * times->step, 1e6 * times->afterwards);
             }});
  }
}

}  // namespace everyo::verify_room
