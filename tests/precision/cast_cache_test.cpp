#include <gmock/gmock.h>

#include <array>
#include <thread>
#include <vector>

#include "everyo/autograd.h"
#include "everyo/error.h"
#include "everyo/memory.h"
#include "everyo/nn.h"
#include "everyo/op.h"
#include "everyo/optim.h"
#include "everyo/precision.h"
#include "everyo/random.h"

// Under autocast a parameter is cast once for each time that it is written, and never found as it was before.
namespace everyo {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t seed) {
  const Tensor t = Tensor::empty(shape);
  Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}

// What a layer gives under autocast.
Tensor low(Linear& layer, const Tensor& x, DType dtype = bfloat16) {
  const Autocast scope(dtype);
  return layer(x);
}

// The same from the weights as they are, without anything kept.
std::vector<double> expected(Linear& layer, const Tensor& x, DType dtype = bfloat16) {
  const NoGrad no_grad;
  const auto fresh = [&](const Tensor& t) { return cast(t.copy(), dtype); };
  return linear(fresh(x), fresh(layer.parameters()[0]), fresh(layer.parameters()[1])).to_vector();
}

// The storages of the casts of the weight in a forward.
const Storage* cast_weight(Linear& layer, const Tensor& x, DType dtype = bfloat16) {
  Tracer tracer;
  {
    const Scoped<&Context::tracer> tracing(&tracer);
    low(layer, x, dtype);
  }
  for (const Tracer::Step& step : tracer.steps)
    if (step.in[0].body() == layer.parameters()[0].body()) return step.out[0].body()->storage.get();
  return nullptr;
}

class CastOfParameter : public ::testing::Test {
 protected:
  Linear layer{6, 5, {.seed = 1}};
  Tensor x = drawn({4, 6}, 2);
  Tensor weight = layer.parameters()[0];
};

TEST_F(CastOfParameter, IsSharedByMicroBatches) {
  const Storage* first = cast_weight(layer, x);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(cast_weight(layer, drawn({3, 6}, 3)), first);
  const Tensor seed = Tensor::ones({4, 5}, bfloat16);
  low(layer, x).backward({.seed = &seed});
  EXPECT_EQ(cast_weight(layer, x), first);
}

TEST_F(CastOfParameter, A06_IsMadeAnewOnceWeightsChange) {
  low(layer, x);
  for (float& w : weight.write<float>()) w *= 2;
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));

  weight.assign(drawn({6, 5}, 4));
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));

  SGD optimizer(layer.parameters(), {.lr = 0.5});
  mean(low(layer, x)).backward();
  optimizer.step();
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));

  layer.load_state_dict(Linear(6, 5, {.seed = 9}).state_dict());
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
}

TEST_F(CastOfParameter, IsOfTheDtypeThatIsSet) {
  for (const DType dtype : {float16, bfloat16, float16})
    EXPECT_EQ(low(layer, x, dtype).to_vector(), expected(layer, x, dtype));
}

TEST_F(CastOfParameter, IsNotKeptWhereWritesGoUnseen) {
  auto* values = reinterpret_cast<float*>(weight.escape());
  low(layer, x);
  values[0] = 100;
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
}

TEST_F(CastOfParameter, IsNotUsedOnceWritesGoUnseen) {
  low(layer, x);
  auto* values = reinterpret_cast<float*>(weight.escape());
  values[0] = 100;
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));

  Linear viewed(6, 5, {.seed = 1});
  const Tensor seen = viewed.parameters()[0];
  low(viewed, x);
  seen.body()->storage->open_view();
  seen.data<float>()[0] = 100;
  EXPECT_EQ(low(viewed, x).to_vector(), expected(viewed, x));
  seen.body()->storage->close_view();
}

TEST_F(CastOfParameter, IsNotKeptWhileAViewIsOpen) {
  Storage& storage = *weight.body()->storage;
  storage.open_view();
  low(layer, x);
  weight.data<float>()[0] = 100;
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
  weight.data<float>()[1] = -100;
  storage.close_view();
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
}

TEST_F(CastOfParameter, GoesWithItsStorage) {
  low(layer, x);
  release_storage(weight);
  const Tensor other = drawn({6, 5}, 5);
  restore_storage(weight, other.body()->storage);
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
}

TEST_F(CastOfParameter, IsNotUsedOnceWritten) {
  Tracer tracer;
  {
    const Scoped<&Context::tracer> tracing(&tracer);
    low(layer, x);
  }
  for (const Tracer::Step& step : tracer.steps)
    if (step.out[0].dtype() == bfloat16)
      for (BFloat16& value : step.out[0].write<BFloat16>()) value = {};
  EXPECT_EQ(low(layer, x).to_vector(), expected(layer, x));
}

TEST_F(CastOfParameter, KeepsAGraphFromSeeingOtherWeights) {
  x.set_requires_grad();
  const Tensor y = low(layer, x), seed = Tensor::ones({4, 5}, bfloat16);
  for (float& w : weight.write<float>()) w += 1;
  low(layer, x);
  EXPECT_THROW(y.backward({.seed = &seed}), StateError);
}

TEST_F(CastOfParameter, CountsAsTheParametersMemory) {
  const auto bytes = [&] { return memory::report()[MemoryCategory::activation].now; };
  const auto before = bytes();
  low(layer, x);
  EXPECT_EQ(bytes(), before);
}

TEST_F(CastOfParameter, IsSharedByThreads) {
  const std::vector<double> right = expected(layer, x);
  std::array<std::vector<double>, 4> got;
  {
    std::vector<std::jthread> threads;
    for (auto& result : got)
      threads.emplace_back([&] {
        const NoGrad no_grad;
        for (int i = 0; i < 50; ++i) result = low(layer, x).to_vector();
      });
  }
  EXPECT_THAT(got, ::testing::Each(right));
}

}  // namespace
}  // namespace everyo
