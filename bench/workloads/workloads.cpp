#include "workloads/workloads.h"

#include <cmath>

#include "everyo/error.h"
#include "everyo/random.h"

namespace bench {
namespace {
namespace eo = everyo;

// N batch, D features. Parameter k of a net is default_rng(1000 + k).uniform(-a, a), a = sqrt(6 / fan_in); biases 0.
eo::Sequential perceptron(const std::vector<std::int64_t>& widths) {
  eo::Sequential net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    net.push_back(eo::Linear(widths[i], widths[i + 1], {.seed = 1000 + 2 * i}));
    if (i + 2 < widths.size()) net.push_back(eo::ReLU());
  }
  return net;
}

class Classifier : public Workload {
 public:
  Classifier(eo::Sequential net, std::int64_t batch, std::int64_t features) : net_(std::move(net)) {
    eo::Generator generator(7);
    x_ = eo::Tensor::empty({batch, features});
    for (float& value : x_.data<float>()) value = static_cast<float>(generator.standard_normal());
    labels_ = eo::Tensor::empty({batch}, eo::int64);
    generator.integers(0, 10, labels_.data<std::int64_t>());
  }
  void train_with(std::unique_ptr<eo::Optimizer> optimizer) { optimizer_ = std::move(optimizer); }
  eo::Sequential& net() { return net_; }

  eo::Tensor step() override {
    optimizer_->zero_grad();
    eo::Tensor loss = eo::cross_entropy(net_(x_), labels_);
    loss.backward();
    optimizer_->step();
    return loss;
  }

 private:
  eo::Sequential net_;
  eo::Tensor x_, labels_;
  std::unique_ptr<eo::Optimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Workload> make_workload(const std::string& name) {
  if (name == "mlp-small") {
    auto w = std::make_unique<Classifier>(perceptron({64, 32, 10}), 32, 64);
    w->train_with(std::make_unique<eo::SGD>(w->net().parameters(), eo::SGDOptions{.lr = 0.01}));
    return w;
  }
  if (name == "mlp-mid") {
    auto w = std::make_unique<Classifier>(perceptron({784, 256, 128, 10}), 64, 784);
    w->train_with(std::make_unique<eo::Adam>(w->net().parameters(), eo::AdamOptions{.lr = 1e-3}));
    return w;
  }
  throw eo::ValueError("[workload] '" + name + "' is unknown; there are mlp-small and mlp-mid");
}

}  // namespace bench
