#include "everyo/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "everyo/memory.h"
#include "tensor/pool.h"

namespace everyo {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Tensor, HoldsEveryDType) {
  for (std::size_t k = 0; k < dtype_count; ++k) {
    const auto dtype = static_cast<DType>(k);
    const Tensor t = Tensor::full({2, 3}, 1, dtype);
    EXPECT_EQ(t.spec().bytes(), 6 * size_of(dtype));
    EXPECT_THAT(t.to_vector(), ElementsAre(1, 1, 1, 1, 1, 1));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.bytes()) % 64, 0u);
  }
}

TEST(Tensor, SaysWhatDoesNotFit) {
  EXPECT_THAT(
      [] {
        (void)Tensor::from({1.0f, 2.0f}, {3});
      },
      ThrowsMessage<ShapeError>(HasSubstr("2 values do not fill shape (3,)")));
  const Tensor t = Tensor::ones({2});
  EXPECT_THAT([&] { (void)t.data<double>(); },
              ThrowsMessage<DTypeError>(HasSubstr("the tensor is float32, float64 was asked for")));
  EXPECT_THAT([&] { (void)t.item(); }, ThrowsMessage<ValueError>(HasSubstr("exactly one element")));
  EXPECT_THAT([&] { t.assign(Tensor::ones({3})); }, ThrowsMessage<ShapeError>(HasSubstr("tensor (2,), value (3,)")));
  EXPECT_THAT([&] { (void)Tensor::meta({float32, {2}}).data<float>(); }, ThrowsMessage<StateError>(HasSubstr("meta")));
}

TEST(Tensor, AssignConvertsAndCountsTheWrite) {
  const Tensor t = Tensor::zeros({2}, float16);
  const std::uint32_t before = t.body()->version();
  t.assign(Tensor::from({1.0, 65520.0}));
  EXPECT_THAT(t.to_vector(), ElementsAre(1, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(t.body()->version(), before + 1);
}

TEST(Tensor, BorrowsRowMajorMemoryAndCopiesTheRest) {
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0f);
  int freed = 0;
  {
    const Tensor shared = Tensor::borrow(values.data(), {float32, {3, 4}}, {}, [&] { ++freed; });
    EXPECT_EQ(shared.data<float>().data(), values.data());
    const Tensor other = shared.detach();
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  const std::int64_t transposed[] = {1, 4};
  const Tensor copy = Tensor::borrow(values.data(), {float32, {4, 3}}, transposed, [&] { ++freed; });
  EXPECT_EQ(freed, 2);
  EXPECT_NE(copy.data<float>().data(), values.data());
  EXPECT_THAT(copy.to_vector(), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  const std::int64_t backwards[] = {-1};
  EXPECT_THAT(Tensor::borrow(values.data() + 3, {float32, {3}}, backwards).to_vector(), ElementsAre(3, 2, 1));
  std::vector<std::byte> bytes(17);
  const float seven = 7;
  std::memcpy(bytes.data() + 1, &seven, sizeof seven);
  EXPECT_EQ(Tensor::borrow(bytes.data() + 1, {float32, {1}}).item(), 7);  // not aligned: a copy
  EXPECT_THAT(
      [&] {
        (void)Tensor::borrow(values.data(), {float32, {3, 4}}, backwards);
      },
      ThrowsMessage<ShapeError>(HasSubstr("1 strides for shape (3, 4)")));
}

TEST(Tensor, AnEscapedViewIsRemembered) {
  const Tensor t = Tensor::ones({2});
  EXPECT_FALSE(t.body()->storage->escaped());
  (void)t.data<float>();
  EXPECT_FALSE(t.body()->storage->escaped());
  EXPECT_EQ(t.escape(), t.bytes());
  EXPECT_TRUE(t.detach().body()->storage->escaped());  // of the bytes, whoever looks
}

TEST(Tensor, AnEmptyBatchHasNoBytes) {
  const Tensor t = Tensor::zeros({0, 5});
  EXPECT_EQ(t.size(), 0);
  EXPECT_TRUE(t.to_vector().empty());
  EXPECT_EQ(t.copy().shape(), t.shape());
}

TEST(Memory, CountsByCategoryAndRetags) {
  const auto before = memory::report();
  const Scoped<&Context::category> category(MemoryCategory::optimizer_state);
  const Tensor t = Tensor::zeros({1000});
  EXPECT_EQ(memory::report()[MemoryCategory::optimizer_state].now - before[MemoryCategory::optimizer_state].now, 4000);
  t.body()->storage->retag(MemoryCategory::gradient);
  EXPECT_EQ(memory::report()[MemoryCategory::optimizer_state].now, before[MemoryCategory::optimizer_state].now);
  EXPECT_EQ(memory::report()[MemoryCategory::gradient].now - before[MemoryCategory::gradient].now, 4000);
  EXPECT_THAT(memory::to_string(memory::report()), HasSubstr("optimizer_state"));
}

TEST(Memory, KnowsTheModuleThatAsked) {
  const ModuleScope scope{nullptr, nullptr, "stem", 42, false};
  const Scoped<&Context::scope> in(&scope);
  EXPECT_EQ(Tensor::ones({1}).body()->storage->scope(), 42u);
  EXPECT_EQ(module_path(), "stem");
}

TEST(Memory, SteadyUseAsksTheSystemForNothing) {
  const auto round = [] {
    for (const std::int64_t n : {1, 100, 5000, 300000}) (void)Tensor::zeros({n});
  };
  round();
  const auto before = memory::report().system_allocations;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(memory::report().system_allocations, before);
}

TEST(Memory, BlocksTravelBetweenThreads) {
  const std::int64_t before = memory::report().total.now;
  for (int i = 0; i < 4; ++i) {
    Tensor made;
    std::thread([&] { made = Tensor::ones({100000}); }).join();
    EXPECT_EQ(made.to_vector()[99999], 1);
  }
  EXPECT_EQ(memory::report().total.now, before);
  memory::trim();
  EXPECT_EQ(memory::report().cached, 0);
}

TEST(Pool, EverySizeIsAlignedAndLargeEnough) {
  for (std::size_t bytes = 0; bytes < 5000; bytes += 7) {
    void* block = pool_take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    std::memset(block, 0xff, bytes);  // the sanitizer watches the end
    pool_give(block, bytes);
  }
}

}  // namespace
}  // namespace everyo
