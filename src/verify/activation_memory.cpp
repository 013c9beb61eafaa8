#include "everyo/memory.h"
#include "everyo/nn.h"
#include "everyo/precision.h"
#include "verify/topics.h"

// P13: what autocast saves of the memory for activations.
namespace everyo::verify_room {
namespace {

Sequential image_net() {  // [N, 32, 32, 3] -> [N, 10]
  Sequential net;
  const std::int64_t channels[] = {3, 32, 64, 128};
  for (std::size_t i = 0; i < 3; ++i) {
    net.push_back(Conv2D(channels[i], channels[i + 1], 3, {.padding = "same", .seed = i}));
    net.push_back(BatchNorm2D(channels[i + 1]));
    net.push_back(ReLU());
    if (i > 0) net.push_back(MaxPool2D());
  }
  net.push_back(Flatten());
  net.push_back(Linear(8192, 10, {.seed = 3}));
  return net;
}

/// Bytes of activations that are alive between forward and backward.
double activation_bytes(std::optional<DType> half) {
  const Sequential net = image_net();
  const Tensor x = Tensor::ones({8, 32, 32, 3}), labels = Tensor::zeros({8}, int64);
  const auto in_use = [] { return static_cast<double>(memory::report()[MemoryCategory::activation].now); };
  const double before = in_use();
  std::optional<Autocast> low;
  if (half) low.emplace(*half);
  const Tensor loss = cross_entropy(net(x), labels);
  return in_use() - before;
}

}  // namespace

void add_activation_memory_checks(Checks& checks, const Figures& figures) {
  checks.push_back({.requirement = "P13",
                    .what = "bytes of activations that await backward under autocast, of float32's",
                    .figure = figures.at("activation_bytes"),
                    .measure =
                        [](bool sabotaged) {
                          const double plain = activation_bytes({});
                          if (sabotaged) return std::vector{activation_bytes({}) / plain, activation_bytes({}) / plain};
                          return std::vector{activation_bytes(float16) / plain, activation_bytes(bfloat16) / plain};
                        },
                    .sabotage = "autocast is off",
                    .note = "three convolutions with batch norm and a Linear on 32 x 32 x 3 images: what ops keep for "
                            "backward is half, and nothing is kept twice",
                    .columns = {"float16", "bfloat16"}});
}

}  // namespace everyo::verify_room
