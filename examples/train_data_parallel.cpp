// Trains a network on handwritten digits on two processes, each with half of every batch, and once more on one. Prints:
//
//     epoch 1  loss 1.5163
//     epoch 3  loss 0.3225
//     epoch 6  loss 0.1495
//     both ranks have the same weights: yes
//     held-out rows right: 97.22 % with two processes, 97.22 % with one
//     with 8 virtual shards one process and two have the same weights: yes
//
// Gradients are averaged while backward runs. The last batch of an epoch has 29 rows: each rank counts by its own.
#include <everyo/everyo.h>

#include <cstdio>

namespace eo = everyo;

namespace {

eo::Sequential make_net() {
  return eo::Sequential(eo::Linear(64, 128, {.seed = 0}), eo::ReLU(), eo::Linear(128, 10, {.seed = 1}));
}
eo::Tensor rows(const eo::Tensor& all, const eo::Block& block) { return eo::slice(all, {{block.first, block.end}}); }

double right_of(const eo::Sequential& net, const eo::ArrayDataset& data) {
  const eo::NoGrad no_grad;
  return 100 * static_cast<double>(eo::count_correct(net(data.features), data.targets).value()) /
         static_cast<double>(data.size());
}

struct Result {
  std::string digest;  // of the weights
  double right;        // held-out rows, percent
};

// A rank's whole life: every rank draws the same batches and takes its block of each.
Result train(eo::ProcessGroup& group) {
  const eo::Split digits = eo::digits_split();
  eo::Sequential net = make_net();
  eo::DataParallel parallel(net, group);  // rank 0's weights, on all ranks
  eo::Adam optimizer(net.parameters(), {.lr = 2e-3});
  eo::Loader loader(digits.train, {.batch = 32, .shuffle = true, .seed = 0});
  for (int epoch = 1; epoch <= 6; ++epoch) {
    double sum[] = {0};
    for (const auto& [x, y] : loader) {
      const eo::Block own = eo::shard_indices(y.size(), group.rank(), group.world_size(), false);
      optimizer.zero_grad();
      const eo::Tensor loss = eo::cross_entropy(net(rows(x, own)), rows(y, own));
      parallel.set_weight(static_cast<double>(own.size()));
      loss.backward();
      optimizer.step();
      sum[0] += loss.item() * static_cast<double>(own.size());
    }
    group.all_reduce(std::span(sum));
    if (group.rank() == 0 && group.world_size() > 1 && (epoch == 1 || epoch % 3 == 0))
      std::printf("epoch %d  loss %.4f\n", epoch, sum[0] / static_cast<double>(loader.samples()));
  }
  return {eo::digest(net.state_dict()), right_of(net, digits.test)};
}

// The same with the bits of any number of workers.
std::string train_in_shards(eo::ProcessGroup& group) {
  constexpr int shard_count = 8;
  const eo::Split digits = eo::digits_split();
  eo::Sequential net = make_net();
  eo::VirtualShards shards(net, group, shard_count);
  eo::Adam optimizer(net.parameters(), {.lr = 2e-3});
  eo::Loader loader(digits.train, {.batch = 32, .shuffle = true, .seed = 0});
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    shards.run([&](std::int64_t shard) {
      const std::int64_t all = batch.targets.size();
      const eo::Block own = eo::shard_indices(all, static_cast<int>(shard), shard_count, false);
      const double part = static_cast<double>(own.size()) / static_cast<double>(all);
      (eo::cross_entropy(net(rows(batch.features, own)), rows(batch.targets, own)) * part).backward();
    });
    optimizer.step();
  }
  return eo::digest(net.state_dict());
}

const char* yes_or_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

int main() try {
  const auto two = eo::run_processes(2, [](eo::ProcessGroup& group) {
    const Result result = train(group);
    return result.digest + ' ' + std::to_string(result.right);
  });
  const Result one = train(*eo::single_process_group());
  std::printf("both ranks have the same weights: %s\n", yes_or_no(two[0] == two[1]));
  std::printf("held-out rows right: %.2f %% with two processes, %.2f %% with one\n",
              std::stod(two[0].substr(two[0].find(' '))), one.right);
  const auto sharded = eo::run_processes(2, train_in_shards);
  std::printf("with %d virtual shards one process and two have the same weights: %s\n", 8,
              yes_or_no(sharded[0] == train_in_shards(*eo::single_process_group())));
} catch (const eo::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
