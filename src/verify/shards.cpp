#include <algorithm>
#include <cmath>

#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/random.h"
#include "verify/ranks.h"
#include "verify/topics.h"

// D1, D2, D4: gradients of parts of a batch, and how they become the whole batch's.
namespace everyo::verify_room {
namespace {

constexpr std::int64_t features = 8, hidden = 16;

/// Layer k draws its weights from default_rng(k).uniform(-1/sqrt(fan_in), 1/sqrt(fan_in)); biases are 0.
Sequential perceptron() {
  Sequential net(Linear(features, hidden), Tanh(), Linear(hidden, 1));
  const auto parameters = net.parameters();
  for (std::size_t k = 0; k < 2; ++k) {
    const double bound = 1 / std::sqrt(k == 0 ? features : hidden);
    Generator(k).uniform(-bound, bound, parameters[2 * k].write<float>());
    std::ranges::fill(parameters[2 * k + 1].write<float>(), 0.f);
  }
  return net;
}

struct Batch {  // default_rng(0): inputs, then targets, from the standard normal distribution
  explicit Batch(std::int64_t count) : rows(count), x(Tensor::empty({count, features})), y(Tensor::empty({count, 1})) {
    Generator generator(0);
    generator.normal(0, 1, x.data<float>());
    generator.normal(0, 1, y.data<float>());
  }
  [[nodiscard]] Tensor loss(const Sequential& net, const Block& part) const {
    return mse_loss(net(slice(x, {{part.first, part.end}})), slice(y, {{part.first, part.end}}));
  }
  [[nodiscard]] std::vector<double> gradients() const {
    Sequential net = perceptron();
    loss(net, {0, rows}).backward();
    return gradients_of(net);
  }
  std::int64_t rows;
  Tensor x, y;
};

enum class How { by_rows, unweighted, summed };

/// The gradients of four shards, each of a copy of the model, averaged in float64; or their sum.
std::vector<double> of_clones(const Batch& batch, How how) {
  constexpr int shards = 4;
  const Sequential net = perceptron();
  std::vector<double> sum;
  for (int s = 0; s < shards; ++s) {
    Sequential copy = net.clone();
    batch.loss(copy, shard_indices(batch.rows, s, shards)).backward();
    const std::vector<double> own = gradients_of(copy);
    sum.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i] / (how == How::summed ? 1 : shards);
  }
  return sum;
}
/// The same by a group.
std::vector<double> of_ranks(Ranks ranks, int count, const Batch& batch, How how) {
  return on_ranks(ranks, count, [&](ProcessGroup& group) {
    Sequential net = perceptron();
    const Block own = shard_indices(batch.rows, group.rank(), group.world_size(), false);
    batch.loss(net, own).backward();
    average_gradients(net.parameters(), group, {.weight = how == How::by_rows ? static_cast<double>(own.size()) : 1.0});
    std::vector<double> all = gradients_of(net);
    if (how == How::summed)
      for (double& g : all) g *= group.world_size();
    return all;
  })[0];
}

/// A sum of squares (w x)^2 at w = 1 for x = 1, 2, 3, 4: its gradient by w in one process, as two ranks average it, and
/// that times their number.
std::vector<double> of_a_sum(bool summed) {
  const auto gradient = [](ProcessGroup& group) {
    const Tensor w = Tensor::ones({1});
    w.set_requires_grad();
    const Block own = shard_indices(4, group.rank(), group.world_size());
    for (std::int64_t x = own.first + 1; x <= own.end; ++x) sum(power(w * static_cast<double>(x), 2)).backward();
    average_gradients({&w, 1}, group);
    return std::vector{w.grad().item()};
  };
  const double averaged = on_ranks(Ranks::threads, 2, gradient)[0][0] * (summed ? 2 : 1);
  return {gradient(*single_process_group())[0], averaged, 2 * averaged};
}

/// Three ranks and two parameters; only rank 2 has a gradient, of the first: 3. What rank 0 has then, whether anybody
/// has one of the second, and on how many ranks the first is another than on rank 0.
std::vector<double> of_absent_gradients(bool left_out) {
  const auto all = on_ranks(Ranks::threads, 3, [&](ProcessGroup& group) {
    const std::vector<Tensor> p = {Tensor::ones({1}), Tensor::ones({1})};
    for (const Tensor& t : p) t.set_requires_grad();
    const bool has = group.rank() == 2;
    if (has) sum(p[0] * 3.0).backward();
    average_gradients(p, group);
    if (left_out && !has) p[0].zero_grad();
    return std::vector{p[0].grad().defined() ? p[0].grad().item() : 0.0, p[1].grad().defined() ? 1.0 : 0.0};
  });
  double others = 0;
  for (const auto& rank : all) others += rank[0] == all[0][0] ? 0 : 1;
  return {all[0][0], all[0][1] + all[1][1] + all[2][1], others};
}

std::vector<double> sizes(std::int64_t count, bool drop_last) {
  std::vector<double> all;
  for (int rank = 0; rank < 3; ++rank)
    all.push_back(static_cast<double>(shard_indices(count, rank, 3, drop_last).size()));
  return all;
}

}  // namespace

void add_shard_checks(Checks& checks, const Figures& figures) {
  checks.push_back({.requirement = "D1",
                    .what = "distance of four shards' averaged gradients from the whole batch's, of 64 rows",
                    .figure = figures.at("even_shards"),
                    .measure =
                        [](bool sabotaged) {
                          const Batch batch(64);
                          const std::vector<double> whole = batch.gradients();
                          const How how = sabotaged ? How::summed : How::by_rows;
                          return std::vector{distance(of_clones(batch, how), whole),
                                             distance(of_ranks(Ranks::threads, 4, batch, how), whole),
                                             distance(of_ranks(Ranks::processes, 4, batch, how), whole)};
                        },
                    .sabotage = "gradients are summed, not averaged",
                    .note = "an 8-16-1 network, each shard on a copy of it, by hand, and by average_gradients",
                    .columns = {"copies", "threads", "processes"}});
  const auto uneven = [](How how) {
    const Batch batch(65);
    const std::vector<double> whole = batch.gradients();
    return std::vector{distance(of_ranks(Ranks::threads, 3, batch, how), whole),
                       distance(of_ranks(Ranks::processes, 3, batch, how), whole)};
  };
  checks.push_back({.requirement = "D2",
                    .what = "the same of 65 rows over 3 workers, each weighted by its rows",
                    .figure = figures.at("uneven_shards"),
                    .measure = [=](bool sabotaged) { return uneven(sabotaged ? How::unweighted : How::by_rows); },
                    .sabotage = "the mean is unweighted",
                    .columns = {"threads", "processes"}});
  checks.push_back({.requirement = "D2",
                    .what = "the same unweighted: another gradient",
                    .figure = figures.at("unweighted_mean"),
                    .measure = [=](bool sabotaged) { return uneven(sabotaged ? How::by_rows : How::unweighted); },
                    .sabotage = "it is weighted by rows",
                    .columns = {"threads", "processes"}});
  checks.push_back({.requirement = "D2",
                    .what = "gradient of a loss that is a sum over 4 samples, halved by averaging over 2 ranks",
                    .figure = figures.at("summed_loss"),
                    .measure = [](bool sabotaged) { return of_a_sum(sabotaged); },
                    .sabotage = "gradients are summed, not averaged",
                    .note = "use a mean, or multiply the loss by the number of ranks",
                    .columns = {"1 process", "2 ranks", "times 2"}});
  checks.push_back({.requirement = "D4",
                    .what = "samples of 10 that 3 ranks get",
                    .figure = figures.at("shard_sizes"),
                    .measure = [](bool sabotaged) { return sizes(10, sabotaged); },
                    .sabotage = "the rest is dropped",
                    .columns = {"rank 0", "rank 1", "rank 2"}});
  checks.push_back({.requirement = "D4",
                    .what = "the same, the rest dropped",
                    .figure = figures.at("shard_sizes_dropped"),
                    .measure = [](bool sabotaged) { return sizes(10, !sabotaged); },
                    .sabotage = "the rest is kept",
                    .columns = {"rank 0", "rank 1", "rank 2"}});
  checks.push_back(
      {.requirement = "D4",
       .what = "a gradient of 3 on one rank of three, on none: the mean, how many have one, how many differ",
       .figure = figures.at("absent_gradients"),
       .measure = [](bool sabotaged) { return of_absent_gradients(sabotaged); },
       .sabotage = "ranks without a gradient are left out",
       .columns = {"on one", "on none", "differ"}});
}

}  // namespace everyo::verify_room
