#include "verify/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/random.h"
#include "verify/topics.h"

namespace everyo::verify_room {

const char* name_of(Ranks ranks) noexcept { return ranks == Ranks::threads ? "threads" : "processes"; }

std::vector<std::vector<double>> on_ranks(Ranks ranks, int count, const Worker& worker) {
  const auto run = ranks == Ranks::threads ? run_threads : run_processes;
  const auto texts =
      run(count,
          [&](ProcessGroup& group) {
            const std::vector<double> numbers = worker(group);
            return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
          },
          {.timeout = Timeout(120)});
  std::vector<std::vector<double>> all;
  for (const std::string& text : texts) {
    all.emplace_back(text.size() / sizeof(double));
    std::memcpy(all.back().data(), text.data(), text.size());
  }
  return all;
}

std::vector<double> gradients_of(ModuleBase& model) {
  std::vector<double> all;
  for (const Tensor& p : model.parameters()) {
    const std::vector<double> values = p.grad().to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::vector<double> of_rank_0(std::vector<double> values, ProcessGroup& group) {
  group.broadcast(std::span(values), 0);
  return values;
}

Regression::Regression(std::int64_t rows, std::int64_t features, double noise)
    : x(Tensor::empty({rows, features})), y(Tensor::empty({rows, 1})) {
  Generator generator(0);
  generator.normal(0, 1, x.data<float>());
  const Tensor weights = Tensor::empty({features, 1});
  generator.uniform(-3, 3, weights.data<float>());
  const Tensor product = matmul(x, weights);
  std::ranges::transform(product.data<float>(), y.data<float>().begin(), [&](float p) {
    return static_cast<float>(static_cast<double>(p) + noise * generator.standard_normal());
  });
}

Tensor Regression::loss(const Sequential& model, std::int64_t first, std::int64_t end) const {
  return mse_loss(model(slice(x, {{first, end}})), slice(y, {{first, end}}));
}

}  // namespace everyo::verify_room
