#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/draw.h"
#include "kernels/each_target.h"

namespace everyo::kernels {
namespace {

// One update of n elements by the kernel and by the rule in double.
template <class T>
void check_sgd(std::int64_t n, const SgdScalars& s, double tolerance) {
  auto w = draw<T>(n, 1);
  const auto g = draw<T>(n, 2), before = w;
  auto v = draw<float>(n, 3);
  const auto old = v;
  const SgdTask task{.weights = {.dtype = dtype_v<T>, .weight = w.data(), .size = n},
                     .state_dtype = float32,
                     .gradient = g.data(),
                     .velocity = v.data(),
                     .first = false};
  sgd({&task, 1}, s);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double weight = widen(before[i]), grad = widen(g[i]) + s.weight_decay * weight;
    const double velocity = s.momentum * old[i] + grad;
    const double want = weight - s.lr * (s.nesterov ? grad + s.momentum * velocity : velocity);
    ASSERT_NEAR(v[i], velocity, 1e-6) << i;  // two float32 roundings of numbers up to 2
    ASSERT_NEAR(widen(w[i]), want, tolerance) << i;
  }
}

TEST(OptimizerKernels, SgdFollowsItsRule) {
  for_each_target([] {
    for (const std::int64_t n : {0, 1, 7, 33, 1000}) {
      for (const bool nesterov : {false, true}) {
        const SgdScalars s{0.1, 0.9, 0.01, nesterov};
        check_sgd<float>(n, s, 5e-7);       // a few float32 roundings near 1
        check_sgd<Float16>(n, s, 0x1p-11);  // half the distance of neighbours below 2, and float32's error
        check_sgd<BFloat16>(n, s, 0x1p-8 + 1e-6);
      }
    }
  });
}

template <class T>
void check_adam(std::int64_t n, bool amsgrad, double tolerance) {
  auto w = draw<T>(n, 1);
  const auto g = draw<T>(n, 2), before = w;
  auto mean = draw<float>(n, 3), square = draw<float>(n, 4, 0.1, 1), largest = draw<float>(n, 5, 0.1, 1);
  const auto old_mean = mean, old_square = square, old_largest = largest;
  const AdamTask task{.weights = {.dtype = dtype_v<T>, .weight = w.data(), .size = n},
                      .state_dtype = float32,
                      .gradient = g.data(),
                      .mean = mean.data(),
                      .square = square.data(),
                      .largest = amsgrad ? largest.data() : nullptr,
                      .step_size = 0.02,
                      .square_factor = 1.5};
  const AdamScalars s{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .decay_factor = 0.999};
  adam({&task, 1}, s);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double weight = widen(before[i]), grad = widen(g[i]) + s.weight_decay * weight;
    const double m = s.beta1 * old_mean[i] + (1 - s.beta1) * grad;
    double v = s.beta2 * old_square[i] + (1 - s.beta2) * grad * grad;
    ASSERT_NEAR(mean[i], m, 1e-6) << i;
    ASSERT_NEAR(square[i], v, 1e-6) << i;
    if (amsgrad) v = std::max<double>(v, old_largest[i]);
    if (amsgrad) {
      ASSERT_NEAR(largest[i], v, 1e-6) << i;
    }
    const double want = s.decay_factor * weight - task.step_size * m / (std::sqrt(v) * task.square_factor + s.eps);
    ASSERT_NEAR(widen(w[i]), want, tolerance) << i;
  }
}

TEST(OptimizerKernels, AdamFollowsItsRule) {
  for_each_target([] {
    for (const std::int64_t n : {0, 1, 7, 33, 1000}) {
      for (const bool amsgrad : {false, true}) {
        check_adam<float>(n, amsgrad, 5e-7);
        check_adam<Float16>(n, amsgrad, 0x1p-11);
        check_adam<BFloat16>(n, amsgrad, 0x1p-8 + 1e-6);
      }
    }
  });
}

// With a master, the step is that of a float32 weight, and the half is its rounding: to the bit, as the same vectors
// compute it.
template <class T>
void check_master(std::int64_t n, DType state) {
  const auto g = draw<T>(n, 2);
  auto master = draw<float>(n, 1);
  auto fine = master;
  auto w = std::vector<T>(master.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = narrow<T>(master[i]);
  std::vector<float> wide_g(g.size());
  for (std::size_t i = 0; i < g.size(); ++i) wide_g[i] = widen(g[i]);
  std::vector<double> mean(master.size()), square(master.size());  // room for any dtype
  auto other_mean = mean, other_square = square;
  const AdamScalars s{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0, .decay_factor = 0.999};
  for (int step = 0; step < 3; ++step) {
    AdamTask task{.weights = {.dtype = dtype_v<T>, .weight = w.data(), .master = master.data(), .size = n},
                  .state_dtype = state,
                  .gradient = g.data(),
                  .mean = mean.data(),
                  .square = square.data(),
                  .largest = nullptr,
                  .step_size = 1e-3,
                  .square_factor = 1.5};
    adam({&task, 1}, s);
    task.weights = {.dtype = float32, .weight = fine.data(), .size = n};
    task.gradient = wide_g.data();
    task.mean = other_mean.data();
    task.square = other_square.data();
    adam({&task, 1}, s);
    ASSERT_EQ(master, fine);
    ASSERT_EQ(mean, other_mean);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i], narrow<T>(master[i])) << i;
  }
}

// Times 0.9, the smallest subnormal number rounds to itself: a moment without gradients must come to 0 all the same.
TEST(OptimizerKernels, MomentsThatOnlyDecayEnd) {
  for_each_target([] {
    constexpr std::int64_t n = 19;
    constexpr float smallest = std::numeric_limits<float>::min(), moment = 1.5f * smallest;
    std::vector<float> w(n, 1), g(n, 0), v(n, moment), mean = v, square = v;
    const WeightTask weights{.dtype = float32, .weight = w.data(), .size = n};
    const SgdTask sgd_task{
        .weights = weights, .state_dtype = float32, .gradient = g.data(), .velocity = v.data(), .first = false};
    const AdamTask adam_task{.weights = weights,
                             .state_dtype = float32,
                             .gradient = g.data(),
                             .mean = mean.data(),
                             .square = square.data(),
                             .largest = nullptr,
                             .step_size = 1e-3,
                             .square_factor = 1};
    const auto step = [&] {
      sgd({&sgd_task, 1}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0, .nesterov = false});
      adam({&adam_task, 1}, {.beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .weight_decay = 0, .decay_factor = 1});
    };
    step();
    for (const auto& each : {v, mean, square}) EXPECT_EQ(each, std::vector<float>(n, 0.9f * moment));  // still normal
    for (int i = 0; i < 4; ++i) step();  // 1.5 * 0.9^4 < 1
    for (const auto& each : {v, mean, square}) EXPECT_EQ(each, std::vector<float>(n, 0));
  });
}

TEST(OptimizerKernels, AMasterIsSteppedAsAFloat32Weight) {
  for_each_target([] {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{7}, std::int64_t{33}, several_blocks}) {
      for (const DType state : {float32, bfloat16, float64}) {
        check_master<Float16>(n, state);
        check_master<BFloat16>(n, state);
      }
    }
  });
}

// A half that was set by someone else is what counts, and only where it was.
template <class T>
void check_followed(DType state) {
  std::vector<T> w(40, narrow<T>(1.0));
  std::vector<float> master(40, 1.0004F);  // rounds to 1 in either half
  w[3] = w[35] = narrow<T>(2.0);
  const std::vector<T> g(40, narrow<T>(0.0));
  const SgdTask task{.weights = {.dtype = dtype_v<T>, .weight = w.data(), .master = master.data(), .size = 40},
                     .state_dtype = state,
                     .gradient = g.data(),
                     .velocity = nullptr,
                     .first = true};
  sgd({&task, 1}, {.lr = 1, .momentum = 0, .weight_decay = 0, .nesterov = false});
  for (std::size_t i = 0; i < w.size(); ++i) {
    ASSERT_EQ(master[i], i == 3 || i == 35 ? 2.0F : 1.0004F) << i;
    ASSERT_EQ(widen(w[i]), i == 3 || i == 35 ? 2.0F : 1.0F) << i;
  }
}

TEST(OptimizerKernels, AMasterFollowsAWeightThatWasSet) {
  for_each_target([] {
    for (const DType state : {float32, float64}) {
      check_followed<Float16>(state);
      check_followed<BFloat16>(state);
    }
  });
}

TEST(OptimizerKernels, MomentsInBfloat16AreRoundedOnce) {
  for_each_target([] {
    for (const std::int64_t n : {1, 7, 33, 1000}) {
      auto w = draw<float>(n, 1), wide = w;
      const auto g = draw<float>(n, 2);
      auto mean = draw<BFloat16>(n, 3), square = draw<BFloat16>(n, 4, 0.1, 1);
      std::vector<float> wide_mean, wide_square;
      for (const BFloat16 v : mean) wide_mean.push_back(widen(v));
      for (const BFloat16 v : square) wide_square.push_back(widen(v));
      const AdamScalars s{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .decay_factor = 1};
      AdamTask task{.weights = {.dtype = float32, .weight = w.data(), .size = n},
                    .state_dtype = bfloat16,
                    .gradient = g.data(),
                    .mean = mean.data(),
                    .square = square.data(),
                    .largest = nullptr,
                    .step_size = 0.02,
                    .square_factor = 1.5};
      adam({&task, 1}, s);
      task.weights.weight = wide.data();
      task.state_dtype = float32;
      task.mean = wide_mean.data();
      task.square = wide_square.data();
      adam({&task, 1}, s);
      EXPECT_EQ(w, wide);  // the step is made before the moments are rounded
      for (std::size_t i = 0; i < w.size(); ++i) {
        ASSERT_EQ(mean[i], narrow<BFloat16>(wide_mean[i]));
        ASSERT_EQ(square[i], narrow<BFloat16>(wide_square[i]));
      }
    }
  });
}

template <class T>
void check_stalls(DType state) {
  // Of 100,003: every third has a change too small for its weight of 1, the others move or have none.
  std::vector<T> w(several_blocks, narrow<T>(1.0)), g(several_blocks, narrow<T>(0.0));
  std::int64_t small = 0, large = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (i % 3 == 0) ++small, g[i] = narrow<T>(0x1p-13);
    if (i % 30 == 1) ++large, g[i] = narrow<T>(0.5);
  }
  for (const int threads : {1, 4}) {
    const ThreadLimit limit(threads);
    auto weights = w;
    Stalls found;
    const SgdTask task{
        .weights = {.dtype = dtype_v<T>, .weight = weights.data(), .stalls = &found, .size = several_blocks},
        .state_dtype = state,
        .gradient = g.data(),
        .velocity = nullptr,
        .first = true};
    sgd({&task, 1}, {.lr = 1, .momentum = 0, .weight_decay = 0, .nesterov = false});
    EXPECT_EQ(found.stalled, small);
    EXPECT_EQ(found.moved, small + large);
    EXPECT_EQ(found.weight, 1);
    EXPECT_EQ(found.change, 0x1p-13F);
  }
}

TEST(OptimizerKernels, WhatRoundingSwallowsIsCounted) {
  for_each_target([] {
    for (const DType state : {float32, float64}) {
      check_stalls<Float16>(state);
      check_stalls<BFloat16>(state);
    }
  });
}

}  // namespace
}  // namespace everyo::kernels
