#include "everyo/step_digest.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "runs.h"

namespace everyo {
namespace {

using ::testing::ElementsAre;
using testing_train::small_net, testing_train::two_classes;

std::vector<std::string> changed(const StepDigest& a, const StepDigest& b) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i] != b.tensors.at(i)) names.push_back(a.tensors[i].kind + " " + a.tensors[i].name);
  return names;
}

TEST(StepDigest, NamesWhatDiffers) {
  Sequential net(Linear(2, 2, {.seed = 1}), BatchNorm1D(2));
  SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const Tensor x = Tensor::ones({2, 2});
  x.write<float>()[0] = 3;
  sum(net(x) * x).backward();
  optimizer.step();
  const StepDigest first = step_digest(net, optimizer, 1);
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.digest.size(), 64u);
  std::vector<std::string> kinds;
  for (const TensorDigest& t : first.tensors)
    if (kinds.empty() || kinds.back() != t.kind) kinds.push_back(t.kind);
  EXPECT_THAT(kinds, ElementsAre("parameter", "buffer", "gradient", "learning_rate", "velocity"));
  EXPECT_EQ(changed(first, step_digest(net, optimizer, 1)), std::vector<std::string>());
  EXPECT_EQ(first.digest, step_digest(net, optimizer, 2).digest);  // of the values alone

  optimizer.set_lr(0.2);
  EXPECT_THAT(changed(first, step_digest(net, optimizer, 1)), ElementsAre("learning_rate group 0"));
  optimizer.set_lr(0.1);
  EXPECT_EQ(first.digest, step_digest(net, optimizer, 1).digest);
  net.named_buffers()[0].second.write<float>()[1] = 5;
  net.parameters()[1].write<float>()[0] = 7;
  const StepDigest after = step_digest(net, optimizer, 1);
  EXPECT_THAT(changed(first, after), ElementsAre("parameter 0.bias", "buffer 1.running_mean"));
  EXPECT_NE(first.digest, after.digest);
}

TEST(StepDigest, ATrainerGivesOneAStep) {
  Sequential net = small_net();
  SGD optimizer(net.parameters(), {.lr = 0.1});
  std::vector<std::int64_t> steps;
  std::string last;
  const DigestSink sink = [&](const StepDigest& digest) {
    steps.push_back(digest.step);
    last = digest.digest;
  };
  Trainer trainer(net, optimizer, testing_train::loss_of_labels(), {.epochs = 2, .digests = sink});
  Loader loader(two_classes(6), {.batch = 4});
  trainer.fit(loader);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(last, step_digest(net, optimizer, 4).digest);
}

}  // namespace
}  // namespace everyo
