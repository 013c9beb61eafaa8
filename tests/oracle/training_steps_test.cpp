#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "bench/workloads/workloads.h"
#include "everyo/io.h"

// Losses and gradients of five steps against PyTorch's in float64, which tests/oracle/make_training_steps.py stored.
namespace bench {
namespace {
namespace eo = everyo;

constexpr int steps = 5;
constexpr std::size_t most_sampled = 128;

std::map<std::string, eo::Tensor> stored(const std::string& name) {
  const std::string folder = std::string(std::getenv("EVERYO_SOURCE_DIR")) + "/tests/oracle/";
  std::map<std::string, eo::Tensor> all;
  for (const auto& [key, tensor] : eo::load_safetensors(folder + "steps_" + name + ".safetensors").tensors)
    all[key] = tensor;
  return all;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

struct Case {
  const char* workload;
  double tolerance;  ///< of a gradient's elements, in norms of the gradient
};
class TrainingSteps : public testing::TestWithParam<Case> {};

// Tolerances: float32 against float64, with sums of up to 65,536 products in another order. Where a gradient is 0 but
// for rounding (a bias in front of a batch norm), a millionth of the largest gradient's norm. Of cnn-cifar's eight
// million activations a few lie so near 0, or near another of their pool's window, that float32 takes the other one:
// each moves a gradient by up to 1e-3 of its norm, and PyTorch's own float32 by 2e-3.
TEST_P(TrainingSteps, GiveTheGradientsOfPyTorch) {
  const auto reference = stored(GetParam().workload);
  const auto workload = make_workload(GetParam().workload);
  const auto losses = reference.at("loss").to_vector();
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(workload->step().item() / losses[step], 1, 1e-6) << "step " << step;
    double largest = 0;
    for (const auto& [key, tensor] : reference)
      if (key.ends_with(".norm")) largest = std::max(largest, tensor.to_vector()[step]);
    std::size_t compared = 0;
    for (const auto& [name, parameter] : workload->net().named_parameters()) {
      const auto gradient = parameter.grad().to_vector();
      const double expected_norm = reference.at(name + ".norm").to_vector()[step];
      const double tolerance = GetParam().tolerance * expected_norm + 1e-6 * largest;
      EXPECT_NEAR(norm(gradient), expected_norm, tolerance) << name << " step " << step;
      double wave = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) wave += gradient[i] * std::cos(static_cast<double>(i));
      // The errors of n elements add up as their square root does, if they have no common cause.
      EXPECT_NEAR(wave, reference.at(name + ".wave").to_vector()[step], 2 * tolerance) << name << " step " << step;
      const auto sample = reference.at(name + ".sample").to_vector();
      const std::size_t stride = (gradient.size() + most_sampled - 1) / most_sampled, columns = sample.size() / steps;
      ASSERT_EQ(columns, (gradient.size() + stride - 1) / stride) << name;
      for (std::size_t i = 0; i < columns; ++i)
        EXPECT_NEAR(gradient[i * stride], sample[step * columns + i], tolerance) << name << " step " << step;
      ++compared;
    }
    EXPECT_EQ(compared, workload->net().parameters().size());
  }
  // After the steps: running statistics, and what the net gives with them.
  for (const auto& [name, buffer] : workload->net().state_dict()) {
    if (name.find("running") == std::string::npos) continue;
    EXPECT_THAT(buffer.to_vector(), testing::Pointwise(testing::DoubleNear(1e-5), reference.at(name).to_vector()))
        << name;
  }
  workload->net().eval();
  const eo::NoGrad no_grad;
  EXPECT_THAT(workload->net()(workload->inputs()).to_vector(),
              testing::Pointwise(testing::DoubleNear(1e-4), reference.at("eval").to_vector()));
}

INSTANTIATE_TEST_SUITE_P(All, TrainingSteps,
                         testing::Values(Case{"cnn-digits", 1e-5}, Case{"cnn-cifar", 5e-3}, Case{"batch-norm", 1e-5}),
                         [](const auto& each) {
                           std::string name = each.param.workload;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace bench
