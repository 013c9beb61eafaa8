#include <array>
#include <bit>
#include <cmath>

#include "everyo/ops.h"
#include "everyo/optim.h"
#include "verify/deep_sigmoid.h"
#include "verify/topics.h"

namespace everyo::verify_room {
namespace {

constexpr std::array scales{1, 8, 16, 24};  // exponents of the loss scale

double differing_bits(std::span<const Tensor> a, std::span<const Tensor> b) {
  double count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].data<float>(), y = b[i].data<float>();
    for (std::size_t k = 0; k < x.size(); ++k)
      count += std::bit_cast<std::uint32_t>(x[k]) != std::bit_cast<std::uint32_t>(y[k]) ? 1 : 0;
  }
  return count;
}

void unscale(const DeepSigmoid& net, double factor) {
  for (const Tensor& parameter : net.parameters()) {
    const Tensor gradient = parameter.grad();
    for (float& g : gradient.write<float>()) g /= static_cast<float>(factor);
  }
}

/// How many gradients differ from the plain ones after scaling the loss and unscaling, once or (wrongly) twice.
std::vector<double> differing_gradients(int times) {
  const DeepSigmoid plain(shallow);
  plain.backward();
  std::vector<double> out;
  for (const int exponent : scales) {
    const DeepSigmoid scaled(shallow);
    const double factor = std::ldexp(1.0, exponent);
    scaled.backward({.factor = factor});
    for (int i = 0; i < times; ++i) unscale(scaled, factor);
    const std::array expected{gradients_of(plain.parameters())}, found{gradients_of(scaled.parameters())};
    out.push_back(differing_bits(expected, found));
  }
  return out;
}

/// How many parameters differ from the plain run's after two steps with momentum.
std::vector<double> differing_parameters(bool unscaled) {
  const auto trained = [&](double factor) {
    DeepSigmoid net(shallow);
    SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.9});
    for (int step = 0; step < 2; ++step) {
      net.backward({.factor = factor});
      if (unscaled) unscale(net, factor);
      optimizer.step();
    }
    return net;
  };
  const DeepSigmoid plain = trained(1);
  std::vector<double> out;
  for (const int exponent : scales)
    out.push_back(differing_bits(plain.parameters(), trained(std::ldexp(1.0, exponent)).parameters()));
  return out;
}

}  // namespace

void add_power_of_two_checks(std::vector<verify::Check>& checks, const Figures& figures) {
  checks.push_back({.requirement = "P14",
                    .what = "gradients that change when the loss is scaled by a power of two and they are unscaled",
                    .figure = figures.at("power_of_two_gradients"),
                    .measure = [](bool sabotaged) { return differing_gradients(sabotaged ? 2 : 1); },
                    .sabotage = "unscaled twice",
                    .note = "so loss scaling by itself costs no accuracy",
                    .columns = {"2^1", "2^8", "2^16", "2^24"}});
  checks.push_back({.requirement = "P14",
                    .what = "parameters that change after two steps with such gradients",
                    .figure = figures.at("power_of_two_step"),
                    .measure = [](bool sabotaged) { return differing_parameters(!sabotaged); },
                    .sabotage = "the step is made with scaled gradients",
                    .columns = {"2^1", "2^8", "2^16", "2^24"}});
}

}  // namespace everyo::verify_room
