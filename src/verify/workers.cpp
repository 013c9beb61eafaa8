#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "everyo/data_parallel.h"
#include "everyo/optim.h"
#include "verify/ranks.h"
#include "verify/topics.h"

// D6: one training run on any number of workers.
namespace everyo::verify_room {
namespace {

constexpr std::int64_t rows = 4096, features = 8;
constexpr double learning_rate = 0.05;
constexpr int most_workers = 4;

Sequential network() {
  return Sequential(Linear(features, 64, {.seed = 0}), Tanh(), Linear(64, 64, {.seed = 1}), Tanh(),
                    Linear(64, 1, {.seed = 2}));
}
constexpr std::size_t last_layer = 4;  // its first parameter

std::vector<double> weights_of(Sequential& net) {
  std::vector<double> all;
  for (const Tensor& p : net.parameters()) {
    const std::vector<double> values = p.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

enum class Fault { none, unweighted, dropped_bucket, stale_buffer, arrival_order };

struct Run {
  int steps = 60;
  Fault fault = Fault::none;
};
constexpr int steps_of_a_faulty_run = 10;  // are enough to see it

/// Sums in the order in which parts arrive: a rank's own first.
void average_in_arrival_order(const Tensor& parameter, ProcessGroup& group) {
  const Tensor gradient = parameter.grad();
  const auto own = gradient.write<float>();
  const auto ranks = static_cast<std::size_t>(group.world_size()), rank = static_cast<std::size_t>(group.rank());
  std::vector<float> all(own.size() * ranks);
  group.all_gather(std::span<const float>(own), std::span(all));
  for (std::size_t i = 0; i < own.size(); ++i) {
    float sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += all[(rank + r) % ranks * own.size() + i];
    own[i] = sum / static_cast<float>(ranks);
  }
}

/// Trains on this rank's rows; the weights.
std::vector<double> train(ProcessGroup& group, const Regression& data, const Run& run) {
  Sequential net = network();
  DataParallel parallel(net, group, {.bucket_bytes = 1 << 13});  // three buckets
  SGD optimizer(net.parameters(), {.lr = learning_rate});
  const std::vector<Tensor> parameters = net.parameters();
  const Block own = shard_indices(rows, group.rank(), group.world_size(), false);
  using Gradients = std::vector<std::vector<float>>;
  const auto of_last_layer = [&] {
    Gradients all;
    for (std::size_t p = last_layer; p < parameters.size(); ++p) {
      const auto values = parameters[p].grad().data<float>();
      all.emplace_back(values.begin(), values.end());
    }
    return all;
  };
  const auto replace_last_layer = [&](const Gradients& by) {
    for (std::size_t p = last_layer; p < parameters.size(); ++p)
      std::ranges::copy(by[p - last_layer], parameters[p].grad().write<float>().begin());
  };
  Gradients kept;
  parallel.set_weight(run.fault == Fault::unweighted ? 1 : static_cast<double>(own.size()));
  for (int step = 0; step < run.steps; ++step) {
    optimizer.zero_grad();
    if (run.fault == Fault::arrival_order || run.fault == Fault::dropped_bucket) {
      const auto apart = parallel.no_sync();
      data.loss(net, own.first, own.end).backward();
    }
    if (run.fault == Fault::arrival_order) {
      for (const Tensor& p : parameters) average_in_arrival_order(p, group);
    } else {
      if (run.fault == Fault::dropped_bucket) {
        kept = of_last_layer();
        optimizer.zero_grad();
      }
      data.loss(net, own.first, own.end).backward();
      if (run.fault == Fault::dropped_bucket) replace_last_layer(kept);
      if (run.fault == Fault::stale_buffer) {  // the exchange of the step before
        const Gradients before = std::exchange(kept, of_last_layer());
        if (step > 0) replace_last_layer(before);
      }
    }
    optimizer.step();
  }
  return weights_of(net);
}

/// Without any group.
std::vector<double> train_alone(const Regression& data, int steps) {
  Sequential net = network();
  SGD optimizer(net.parameters(), {.lr = learning_rate});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    data.loss(net, 0, rows).backward();
    optimizer.step();
  }
  return weights_of(net);
}

/// Of 1 to 4 workers: the largest drift of a weight from one process's, how many ranks have another weight than rank 0,
/// and seconds.
struct Table {
  std::vector<double> drift{}, differing{};
  std::string seconds{};
};
Table table_of(Ranks ranks, const Run& run) {
  const Regression data(rows, features, 0.1);
  const std::vector<double> alone = train_alone(data, run.steps);
  Table table;
  for (int workers = 1; workers <= most_workers; ++workers) {
    const auto start = base::Clock::now();
    const auto all = on_ranks(ranks, workers, [&](ProcessGroup& group) {
      std::vector<double> found = train(group, data, run);
      const bool differs = of_rank_0(found, group) != found;
      found.push_back(differs ? 1 : 0);
      return found;
    });
    table.seconds += fmt::format("{}{:.2f}", workers == 1 ? "" : ", ", base::seconds_since(start));
    double differing = 0;
    for (const auto& rank : all) differing += rank.back();
    table.drift.push_back(distance({all[0].begin(), all[0].end() - 1}, alone));
    table.differing.push_back(differing);
  }
  return table;
}

/// The runs of one transport, made once for the checks that look at them.
class Tables {
 public:
  const Table& of(Ranks ranks, const Run& run) {
    auto& entry = tables_[{ranks, run.fault}];
    if (entry.drift.empty()) entry = table_of(ranks, run);
    return entry;
  }

 private:
  std::map<std::pair<Ranks, Fault>, Table> tables_;
};

}  // namespace

void add_worker_checks(Checks& checks, const Figures& figures) {
  const std::vector<std::string> workers = {"1 worker", "2 workers", "3 workers", "4 workers"};
  const auto tables = std::make_shared<Tables>();
  checks.push_back({.requirement = "D6",
                    .what = "rows that the first worker gets of 4096",
                    .figure = figures.at("rows_per_worker"),
                    .measure =
                        [](bool sabotaged) {
                          std::vector<double> all;
                          for (int n = 1; n <= most_workers; ++n)
                            all.push_back(static_cast<double>(shard_indices(rows, 0, n, sabotaged).size()));
                          return all;
                        },
                    .sabotage = "the rest is dropped",
                    .columns = workers});
  struct Row {
    Ranks ranks;
    Fault fault;
    const char* sabotage;
  };
  for (const Row& row : {Row{Ranks::threads, Fault::unweighted, "the mean is unweighted"},
                         Row{Ranks::threads, Fault::dropped_bucket, "the last layer's bucket is not exchanged"},
                         Row{Ranks::processes, Fault::stale_buffer, "the last layer's bucket is the step before's"}})
    checks.push_back(
        {.requirement = "D6",
         .what = fmt::format("largest drift of a weight from one process after 60 steps: {}{}", name_of(row.ranks),
                             row.fault == Fault::dropped_bucket ? ", in buckets" : ""),
         .figure = figures.at("drift"),
         .measure =
             [=](bool sabotaged) {
               return tables->of(row.ranks, sabotaged ? Run{steps_of_a_faulty_run, row.fault} : Run{}).drift;
             },
         .sabotage = row.sabotage,
         .columns = workers,
         .remark = [=] { return fmt::format("seconds of 60 steps: {}", tables->of(row.ranks, {}).seconds); }});
  for (const Ranks ranks : {Ranks::threads, Ranks::processes})
    checks.push_back(
        {.requirement = "D6",
         .what = fmt::format("workers whose weights are not rank 0's to the bit: {}", name_of(ranks)),
         .figure = figures.at("differing_ranks"),
         .measure =
             [=](bool sabotaged) {
               return tables->of(ranks, sabotaged ? Run{steps_of_a_faulty_run, Fault::arrival_order} : Run{}).differing;
             },
         .sabotage = "sums in the order of arrival",
         .columns = workers});
}

}  // namespace everyo::verify_room
