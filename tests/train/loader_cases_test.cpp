#include <gmock/gmock.h>

#include <cmath>

#include "everyo/nn.h"
#include "everyo/ops.h"
#include "everyo/train.h"

namespace everyo {
namespace {

// Three samples in batches of two: the last one alone has no variance.
TEST(LoaderCases, L02_ALastBatchOfOneIsRefusedByBatchNormOrDropped) {
  Sequential net{Linear(2, 4, {.seed = 0}), BatchNorm1D(4), Linear(4, 2, {.seed = 1})};
  SGD optimizer(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, optimizer, [](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); }, {.epochs = 1});
  const ArrayDataset data(Tensor::from<float>({1, 2, 3, 4, 5, 7}, {3, 2}), Tensor::from<std::int64_t>({0, 1, 0}));
  Loader all(data, {.batch = 2});
  try {
    trainer.fit(all);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("has one value a channel, which has no variance; give a larger batch"));
  }
  Loader whole(data, {.batch = 2, .drop_last = true});
  EXPECT_TRUE(std::isfinite(trainer.fit(whole).epochs.at(0).loss));
  for (const auto& [name, value] : net.state_dict())
    for (const double v : value.to_vector()) EXPECT_TRUE(std::isfinite(v)) << name;
}

}  // namespace
}  // namespace everyo
