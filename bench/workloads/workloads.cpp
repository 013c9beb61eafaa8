#include "bench/workloads/workloads.h"

#include <cmath>
#include <optional>

#include "everyo/error.h"
#include "everyo/random.h"

namespace bench {
namespace {
namespace eo = everyo;

// Parameter k of a net is default_rng(1000 + k).uniform(-a, a), a = sqrt(6 / fan_in); biases 0, norm weights 1.
eo::Sequential perceptron(const std::vector<std::int64_t>& widths) {
  eo::Sequential net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    net.push_back(eo::Linear(widths[i], widths[i + 1], {.seed = 1000 + 2 * i}));
    if (i + 2 < widths.size()) net.push_back(eo::ReLU());
  }
  return net;
}

eo::Conv2D convolution(std::int64_t in_channels, std::int64_t out_channels, std::uint64_t seed) {
  return {in_channels, out_channels, 3, {.padding = "same", .seed = seed}};
}

eo::Sequential digits_net() {  // [N, 8, 8, 1]
  return eo::Sequential(convolution(1, 8, 1000), eo::ReLU(), eo::MaxPool2D(), convolution(8, 16, 1002), eo::ReLU(),
                        eo::Flatten(), eo::Linear(256, 10, {.seed = 1004}));
}

eo::Sequential cifar_net() {  // [N, 32, 32, 3]
  eo::Sequential net;
  const std::int64_t channels[] = {3, 32, 64, 128};
  for (std::size_t i = 0; i < 3; ++i) {
    net.push_back(convolution(channels[i], channels[i + 1], 1000 + 4 * i));
    net.push_back(eo::BatchNorm2D(channels[i + 1]));
    net.push_back(eo::ReLU());
    if (i > 0) net.push_back(eo::MaxPool2D());
  }
  net.push_back(eo::Flatten());
  net.push_back(eo::Linear(128 * 64, 10, {.seed = 1012}));
  return net;
}

eo::Sequential batch_norm_net() {  // [N, 9, 9, 3]
  return eo::Sequential(convolution(3, 8, 1000), eo::BatchNorm2D(8), eo::ReLU(), eo::MaxPool2D(),
                        eo::Conv2D(8, 16, 3, {.stride = 2, .seed = 1004}), eo::BatchNorm2D(16), eo::ReLU(),
                        eo::Flatten(), eo::Linear(16, 12, {.seed = 1008}), eo::BatchNorm1D(12), eo::ReLU(),
                        eo::Linear(12, 10, {.seed = 1012}));
}

class Classifier : public Workload {
 public:
  Classifier(eo::Sequential net, const eo::Shape& inputs, eo::DType precision)
      : net_(std::move(net)), precision_(precision) {
    const eo::Scoped<&eo::Context::category> category(eo::MemoryCategory::input);
    eo::Generator generator(7);
    x_ = eo::Tensor::empty(inputs);
    for (float& value : x_.data<float>()) value = static_cast<float>(generator.standard_normal());
    labels_ = eo::Tensor::empty({inputs[0]}, eo::int64);
    generator.integers(0, 10, labels_.data<std::int64_t>());
  }
  void train_with(std::unique_ptr<eo::Optimizer> optimizer) { optimizer_ = std::move(optimizer); }
  eo::Sequential& net() override { return net_; }
  const eo::Tensor& inputs() const override { return x_; }

  eo::Tensor step() override {
    optimizer_->zero_grad();
    const eo::Tensor loss = loss_of_batch();
    if (precision_ != eo::float16) {
      loss.backward();
      optimizer_->step();
      return loss;
    }
    scaler_.backward(loss);
    scaler_.step(*optimizer_);
    scaler_.update();
    return loss;
  }

 private:
  eo::Tensor loss_of_batch() {
    std::optional<eo::Autocast> autocast;
    if (precision_ != eo::float32) autocast.emplace(precision_);
    return eo::cross_entropy(net_(x_), labels_);
  }

  eo::Sequential net_;
  eo::DType precision_;
  eo::GradScaler scaler_;
  eo::Tensor x_, labels_;
  std::unique_ptr<eo::Optimizer> optimizer_;
};

std::unique_ptr<Workload> classifier(eo::Sequential net, const eo::Shape& inputs, eo::DType precision, double lr) {
  auto w = std::make_unique<Classifier>(std::move(net), inputs, precision);
  w->train_with(std::make_unique<eo::SGD>(w->net().parameters(), eo::SGDOptions{.lr = lr}));
  return w;
}

}  // namespace

std::unique_ptr<Workload> make_workload(const std::string& name, std::int64_t batch, eo::DType precision) {
  if (precision != eo::float32 && !eo::is_half(precision))
    throw eo::DTypeError("[workload] steps run in float32, float16 or bfloat16, not in " +
                         std::string(eo::name_of(precision)));
  const auto rows = [batch](std::int64_t own) { return batch > 0 ? batch : own; };
  if (name == "mlp-small") return classifier(perceptron({64, 32, 10}), {rows(32), 64}, precision, 0.01);
  if (name == "mlp-mid") {
    auto w = std::make_unique<Classifier>(perceptron({784, 256, 128, 10}), eo::Shape{rows(64), 784}, precision);
    w->train_with(std::make_unique<eo::Adam>(w->net().parameters(), eo::AdamOptions{.lr = 1e-3}));
    return w;
  }
  if (name == "cnn-digits") return classifier(digits_net(), {rows(64), 8, 8, 1}, precision, 0.01);
  if (name == "cnn-cifar") return classifier(cifar_net(), {rows(64), 32, 32, 3}, precision, 1e-4);
  if (name == "batch-norm") return classifier(batch_norm_net(), {rows(7), 9, 9, 3}, precision, 0.01);
  throw eo::ValueError("[workload] '" + name +
                       "' is unknown; there are mlp-small, mlp-mid, cnn-digits, cnn-cifar and batch-norm");
}

}  // namespace bench
