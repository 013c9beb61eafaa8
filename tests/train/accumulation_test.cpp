#include "everyo/accumulation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "everyo/nn.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/random.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using Values = std::vector<double>;

constexpr std::int64_t ignored = -100;

Sequential small_net() { return Sequential(Linear(6, 5, {.seed = 1}), Tanh(), Linear(5, 4, {.seed = 2})); }

/// Features [N, 6] and labels 0..3, `ignored` where `counts` is 0.
Batch batch_of(const std::vector<int>& counts) {
  const auto n = static_cast<std::int64_t>(counts.size());
  Generator generator(7);
  std::vector<float> x(counts.size() * 6);
  for (float& v : x) v = static_cast<float>(generator.normal());
  std::vector<std::int64_t> y(counts.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = counts[i] == 0 ? ignored : static_cast<std::int64_t>(i * 7 % 4);
  return {Tensor::from<float>(x, {n, 6}), Tensor::from<std::int64_t>(y, {n})};
}

Tensor loss_of(const Sequential& net, const Tensor& x, const Tensor& y) {
  return cross_entropy(net(x), y, {.ignore_index = ignored});
}

Values gradients(Sequential& net) {
  Values all;
  for (const Tensor& p : net.parameters())
    for (const double v : p.grad().to_vector()) all.push_back(v);
  return all;
}

Values of_the_batch(Sequential& net, const Batch& batch) {
  net.zero_grad();
  loss_of(net, batch.features, batch.targets).backward();
  return gradients(net);
}

Values accumulated(Sequential& net, const Batch& batch, std::int64_t k, bool mean_of_means = false) {
  net.zero_grad();
  const MicroBatches parts(batch, {.accumulate = k, .count = {.ignore_index = ignored}});
  for (const MicroBatch& part : parts) {
    const double weight = mean_of_means ? 1.0 / static_cast<double>(parts.size()) : part.weight;
    (loss_of(net, part.features, part.targets) * weight).backward();
  }
  return gradients(net);
}

double largest(const Values& a) {
  double most = 0;
  for (const double v : a) most = std::max(most, std::abs(v));
  return most;
}
double largest_difference(const Values& a, const Values& b) {
  Values d(a.size());
  std::ranges::transform(a, b, d.begin(), std::minus<>());
  return largest(d);
}

/// Both ways add the same terms, at most 16 rows of them, in another order and with another factor in front: each of
/// about 16 roundings is at most half an ulp of the largest sum, so 8 ulp of the largest gradient.
double rounding(const Values& gradient) { return 8 * std::ldexp(1.0, -23) * largest(gradient); }

/// The sum of each counted row's own gradient in float64, divided by their number.
Values of_each_row(Sequential& net, const Batch& batch) {
  Values sum;
  double count = 0;
  for (std::int64_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets.data<std::int64_t>()[static_cast<std::size_t>(i)] == ignored) continue;
    const Batch row{slice(batch.features, {Slice{i, i + 1}}), slice(batch.targets, {Slice{i, i + 1}})};
    const Values one = of_the_batch(net, row);
    if (sum.empty()) sum.resize(one.size());
    std::ranges::transform(sum, one, sum.begin(), std::plus<>());
    ++count;
  }
  for (double& v : sum) v /= count;
  return sum;
}

TEST(Accumulation, G01_PartsOf3And1LabelsGiveTheMeanOfAll4) {
  Sequential net = small_net();
  const Batch batch = batch_of({1, 1, 0, 1, 0, 0, 1, 0});
  const Values right = of_each_row(net, batch);
  EXPECT_LE(largest_difference(accumulated(net, batch, 2), right), rounding(right));
  EXPECT_GT(largest_difference(accumulated(net, batch, 2, true), right), 1e4 * rounding(right)) << "a mean of means";
}

TEST(Accumulation, G03_TheTokensMeanForCounts4And1AndNothingForNone) {
  Sequential net = small_net();
  const Batch batch = batch_of({1, 1, 1, 1, 0, 1, 0, 0});
  const Values right = of_each_row(net, batch);
  EXPECT_LE(largest_difference(accumulated(net, batch, 2), right), rounding(right));
  const MicroBatches nothing(batch_of({0, 0, 0, 0}), {.accumulate = 2, .count = {.ignore_index = ignored}});
  EXPECT_TRUE(nothing.empty());
  EXPECT_EQ(nothing.count(), 0);
  // One part that is all ignored is no part: a loss of 0 / 0 would be NaN, and NaN times 0 is NaN.
  const MicroBatches half(batch_of({0, 0, 1, 0}), {.accumulate = 2, .count = {.ignore_index = ignored}});
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half.begin()->weight, 1);
  EXPECT_EQ(half.begin()->number, 1);
}

// A1: even, uneven, more parts than rows, ignored labels.
TEST(Accumulation, GivesTheLargeBatchsGradientToRounding) {
  Sequential net = small_net();
  const std::vector<std::vector<int>> batches = {
      std::vector<int>(16, 1), std::vector<int>(11, 1), {1}, {1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 0}};
  for (const std::vector<int>& counts : batches) {
    const Batch batch = batch_of(counts);
    const Values right = of_the_batch(net, batch);
    for (const std::int64_t k : {1, 2, 3, 4, 8, 16})
      EXPECT_LE(largest_difference(accumulated(net, batch, k), right), rounding(right)) << counts.size() << " by " << k;
    EXPECT_EQ(accumulated(net, batch, 1), right) << "one part has the batch's own bits";
  }
}

TEST(Accumulation, CutsRowsAsRanksDo) {
  std::vector<std::int64_t> sizes;
  std::vector<double> weights;
  const Batch batch = batch_of(std::vector<int>(10, 1));
  for (const MicroBatch& part : MicroBatches(batch, {.accumulate = 4})) {
    sizes.push_back(part.features.shape()[0]);
    weights.push_back(part.weight);
    EXPECT_EQ(part.targets.shape()[0], sizes.back());
    EXPECT_EQ(part.features.body()->storage.get(), batch.features.body()->storage.get()) << "a view";
  }
  EXPECT_THAT(sizes, ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(weights, ElementsAre(0.3, 0.3, 0.2, 0.2));
  EXPECT_EQ(MicroBatches(batch, {.accumulate = 100}).size(), 10u);
  EXPECT_TRUE(MicroBatches({Tensor::zeros({0, 6}), Tensor::zeros({0})}, {.accumulate = 2}).empty());
}

TEST(Accumulation, RowsThatPadABatchCountForNothing) {
  Sequential net = small_net();
  Batch batch = batch_of(std::vector<int>(7, 1));
  const Slice first{0, 5};
  const Values right = of_the_batch(net, {slice(batch.features, {first}), slice(batch.targets, {first})});
  batch.padding = 2;
  EXPECT_EQ(accumulated(net, batch, 1), right);
  EXPECT_LE(largest_difference(accumulated(net, batch, 2), right), rounding(right));
  EXPECT_EQ(MicroBatches(batch, {.accumulate = 9}).size(), 5u);
}

TEST(Accumulation, CountsWhatTheLossCounts) {
  const Tensor labels = Tensor::from<std::int64_t>({0, 3, 3, 1, 2, 3}, {2, 3});
  EXPECT_EQ(count_targets(labels), 2);
  EXPECT_EQ(count_targets(labels, 3), 3);
  EXPECT_EQ(count_targets(labels, -1), 6);
  EXPECT_EQ(count_targets(Tensor::from<std::int32_t>({0, 0, 1}), 0), 1);
  EXPECT_EQ(count_targets(Tensor::zeros({3, 4}), 0), 3) << "numbers that are no labels";
  EXPECT_THROW(static_cast<void>(count_targets(Tensor::zeros(Shape{}))), ShapeError);
  const TargetCount own{.of_targets = [](const Tensor& t) { return t.size() - 7; }};
  EXPECT_EQ(own(Tensor::zeros({10})), 3);
  EXPECT_THROW(static_cast<void>(own(Tensor::zeros({6}))), ValueError);
}

TEST(Accumulation, RefusesWhatIsNoBatch) {
  const Batch batch = batch_of({1, 1});
  EXPECT_THROW(const MicroBatches none(batch, {.accumulate = 0}), ValueError);
  EXPECT_THROW(const MicroBatches none({batch.features, Tensor::zeros({3})}), ShapeError);
  EXPECT_THROW(static_cast<void>(effective_batch({.batch = 8}, 0)), ValueError);
  EXPECT_THROW(static_cast<void>(effective_batch({.batch = 0})), ValueError);
}

TEST(Accumulation, EachPartDrawsAMaskOfItsOwn) {
  const Batch batch{Tensor::full({8, 64}, 1.0), Tensor::zeros({8})};
  const auto masks = [&] {
    std::vector<Values> all;
    for (const MicroBatch& part : MicroBatches(batch, {.accumulate = 2}))
      all.push_back(dropout(part.features, 0.5).to_vector());
    return all;
  };
  const std::vector<Values> first = masks();
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(first, masks());
  EXPECT_EQ(first[0], dropout(slice(batch.features, {Slice{0, 4}}), 0.5).to_vector());
  EXPECT_EQ(context().micro_batch, 0);
}

// A2: a batch norm takes its moments over a part, as over a rank's; its statistics move once a part.
TEST(Accumulation, BatchNormSeesTheMicroBatch) {
  Sequential net(BatchNorm1D(6), Linear(6, 4, {.seed = 2}));
  const Batch batch = batch_of(std::vector<int>(8, 1));
  Values by_hand;
  {
    Sequential twin(BatchNorm1D(6), Linear(6, 4, {.seed = 2}));
    for (const std::int64_t begin : {0, 4}) {
      const Slice rows{begin, begin + 4};
      (loss_of(twin, slice(batch.features, {rows}), slice(batch.targets, {rows})) * 0.5).backward();
    }
    by_hand = gradients(twin);
    EXPECT_EQ(accumulated(net, batch, 2), by_hand);
    const StateDict statistics = net.state_dict(), of_twin = twin.state_dict();
    ASSERT_EQ(statistics.size(), of_twin.size());
    for (std::size_t i = 0; i < of_twin.size(); ++i)
      EXPECT_EQ(statistics[i].second.to_vector(), of_twin[i].second.to_vector()) << of_twin[i].first;
  }
  Sequential large(BatchNorm1D(6), Linear(6, 4, {.seed = 2}));
  EXPECT_GT(largest_difference(of_the_batch(large, batch), by_hand), 1e3 * rounding(by_hand));
}

TEST(Accumulation, AsAUserWritesTheLoop) {
  const auto trained = [](std::int64_t accumulate) {
    Sequential net = small_net();
    SGD optimizer(net.parameters(), {.lr = 0.5});
    const Batch all = batch_of(std::vector<int>(40, 1));
    Loader loader(all.features, all.targets, {.batch = 16, .shuffle = true});
    for (int epoch = 0; epoch < 3; ++epoch)
      for (const Batch& batch : loader) {  // 16, 16, 8 rows
        optimizer.zero_grad();
        const MicroBatches parts(batch, {.accumulate = accumulate});
        for (const MicroBatch& part : parts) (cross_entropy(net(part.features), part.targets) * part.weight).backward();
        if (!parts.empty()) optimizer.step();
      }
    Values weights;
    for (const Tensor& p : net.parameters())
      for (const double v : p.to_vector()) weights.push_back(v);
    return weights;
  };
  // Nine steps, each off by a few ulp of its gradient.
  EXPECT_LE(largest_difference(trained(3), trained(1)), 9 * rounding(trained(1)));
}

TEST(EffectiveBatch, IsMicroBatchTimesAccumulationTimesRanks) {
  EXPECT_EQ(to_string(effective_batch({.batch = 32})), "32 = micro-batch 32 x accumulation 1 x ranks 1");
  EXPECT_EQ(to_string(effective_batch({.batch = 64, .world_size = 2}, 4)),
            "64 = micro-batch 8 x accumulation 4 x ranks 2");
  EXPECT_EQ(to_string(effective_batch({.batch = 10}, 4)), "10 = micro-batch up to 3 x accumulation 4 x ranks 1");
  EXPECT_EQ(effective_batch({.batch = 2}, 8).accumulate, 2);
}

}  // namespace
}  // namespace everyo
