#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "data/damaged.h"
#include "data/numbered.h"
#include "everyo/memory.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Counts the rows that are read.
class Counting final : public Dataset {
 public:
  explicit Counting(std::int64_t n) : data_(numbered(n)) {}
  [[nodiscard]] std::int64_t size() const noexcept override { return data_.size(); }
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override {
    read += static_cast<std::int64_t>(indices.size());
    return data_.rows(indices);
  }
  mutable std::atomic<std::int64_t> read{0};

 private:
  ArrayDataset data_;
};

std::vector<std::int64_t> all_of(std::int64_t n) { return sample_order(n, false, 0, 0); }

TEST(TransformDataset, PassesEachSampleThroughAFunction) {
  const TransformDataset data(numbered(5), [](Sample sample) {
    for (float& value : sample.features.data<float>()) value *= 10;  // in place: the rows are its own
    return Sample{sample.features, Tensor::full({2}, sample.targets.item() + 0.5)};
  });
  const Batch rows = data.rows(std::vector<std::int64_t>{3, 1});
  EXPECT_EQ(rows.features.shape(), (Shape{2, 2}));
  EXPECT_THAT(rows.features.to_vector(), ElementsAre(30, -30, 10, -10));
  EXPECT_THAT(rows.targets.to_vector(), ElementsAre(3.5, 3.5, 1.5, 1.5));
  EXPECT_EQ(data.rows({}).targets.spec(), (Spec{float32, {0, 2}}));
  Loader loader(data, {.batch = 2, .workers = 2});
  EXPECT_THAT(loader.next()->features.to_vector(), ElementsAre(0, 0, 10, -10));
  loader.seek(1);
  EXPECT_THAT(loader.next()->features.to_vector(), ElementsAre(0, 0, 10, -10)) << "the data set itself was changed";
  EXPECT_THROW(TransformDataset(numbered(5), Transform()), ValueError);
  EXPECT_THROW(TransformDataset(std::shared_ptr<const Dataset>(), [](Sample s) { return s; }), ValueError);
}

TEST(TransformDataset, NamesTheSampleThatFails) {
  const TransformDataset data(numbered(5), [](Sample sample) {
    if (sample.targets.item() == 3) throw ValueError("three");
    return sample;
  });
  try {
    static_cast<void>(data.rows(all_of(5)));
    FAIL();
  } catch (const SampleError& error) {
    EXPECT_EQ(error.sample(), 3);
    EXPECT_EQ(error.kind(), ErrorKind::value);
    EXPECT_STREQ(error.what(), "[TransformDataset] sample 3: three");
  }
}

/// The message of the ShapeError for reading all rows.
std::string refusal(const Dataset& data) {
  try {
    static_cast<void>(data.rows(all_of(data.size())));
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TransformDataset, RefusesRowsThatAreNotThoseAskedFor) {
  const auto same = [](Sample sample) { return sample; };
  EXPECT_EQ(refusal(TransformDataset(SubsetDataset(Damaged(), {0, 9}), same)),
            "[TransformDataset] the data set gave features (0, 2) and targets (0,) for 2 indices; need a row each");
  for (const Batch& wrong : wrong_batches())
    EXPECT_THAT(refusal(TransformDataset(Wrong(wrong), same)), HasSubstr("need a row each"));
}

TEST(SubsetDataset, GivesItsRowsInItsOrder) {
  const SubsetDataset data(numbered(10), {4, 0, 4, 9});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(data.size(), 4);
  EXPECT_EQ(labels_of(data.rows(all_of(4))), (std::vector<std::int64_t>{4, 0, 4, 9}));
  EXPECT_EQ(labels_of(data.range(1, 2)), (std::vector<std::int64_t>{0, 4}));
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{4})), ShapeError);
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{-1, 2}, {0, -1}, {3, 2}, {5, 0}, {most, 2}, {2, most}, {0, -most}})
    EXPECT_THROW(static_cast<void>(data.range(first, count)), ShapeError) << first << ' ' << count;
  EXPECT_THROW(SubsetDataset(numbered(10), {10}), ShapeError);
  EXPECT_THROW(SubsetDataset(numbered(10), {-1}), ShapeError);
  EXPECT_THROW(SubsetDataset(std::shared_ptr<const Dataset>(), {}), ValueError);
}

TEST(CachedDataset, ReadsEachRowOnce) {
  const auto source = std::make_shared<const Counting>(10);
  const CachedDataset data(source);
  const std::vector<std::int64_t> some{7, 2, 7};
  EXPECT_EQ(labels_of(data.rows(some)), some);
  EXPECT_EQ(data.cached(), 2);
  EXPECT_EQ(data.bytes(), 2 * (2 * 4 + 8));
  const std::int64_t before = source->read;
  const Batch mixed = data.rows(std::vector<std::int64_t>{2, 5, 7, 1});
  EXPECT_EQ(source->read, before + 2);
  EXPECT_THAT(mixed.features.to_vector(), ElementsAre(2, -2, 5, -5, 7, -7, 1, -1));
  EXPECT_EQ(labels_of(mixed), (std::vector<std::int64_t>{2, 5, 7, 1}));
  mixed.features.data<float>()[0] = 99;  // a copy: the next reader gets what was read
  EXPECT_THAT(data.rows(std::vector<std::int64_t>{2}).features.to_vector(), ElementsAre(2, -2));
  EXPECT_EQ(source->read, before + 2);
  EXPECT_EQ(data.rows({}).features.shape(), (Shape{0, 2}));
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{10})), ShapeError);
}

TEST(CachedDataset, RefusesRowsThatAreNotThoseAskedFor) {
  const CachedDataset data(SubsetDataset(Damaged(), {0, 9}));
  static_cast<void>(data.rows(all_of(1)));  // so that rows kept and rows read are put together
  EXPECT_EQ(refusal(data),
            "[CachedDataset] the data set gave features (0, 2) and targets (0,) for 1 indices; need a row each");
  for (const Batch& wrong : wrong_batches()) {
    EXPECT_THAT(refusal(CachedDataset(Wrong(wrong))), HasSubstr("need a row each"));
    const CachedDataset nothing{Wrong(wrong)};
    EXPECT_THROW(static_cast<void>(nothing.rows({})), ShapeError);
    EXPECT_EQ(nothing.cached(), 0);
  }
}

/// Has more samples each time it is asked how many.
class Growing final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const noexcept override { return size_ *= 1000; }
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    return {Tensor::zeros({count, 2}), Tensor::zeros({count})};
  }

 private:
  mutable std::int64_t size_ = 1;
};

TEST(CachedDataset, HasAsManySamplesAsThereWereWhenItWasMade) {
  const CachedDataset data{Growing()};
  static_cast<void>(data.rows(std::vector<std::int64_t>{999}));
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{1000})), ShapeError);
}

TEST(CachedDataset, KeepsNoMoreBytesThanAllowedAndCountsThemAsInput) {
  constexpr std::int64_t row = 2 * 4 + 8;
  const auto source = std::make_shared<const Counting>(1000);
  const auto before = memory::report()[MemoryCategory::input].now;
  const CachedDataset data(source, {.bytes = 100 * row + row - 1});
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(labels_of(data.rows(all_of(1000))), all_of(1000));
  EXPECT_EQ(data.cached(), 100);
  EXPECT_EQ(source->read, 1000 + 900);
  const auto held = memory::report()[MemoryCategory::input].now - before;
  EXPECT_GE(held, 100 * row);
  EXPECT_LE(held, 100 * row + 1024);  // two blocks, rounded up by the allocator
  EXPECT_EQ(CachedDataset(source, {.bytes = 0}).rows(all_of(3)).rows(), 3);
  EXPECT_THROW(CachedDataset(source, {.bytes = -1}), ValueError);
}

TEST(CachedDataset, IsOneForAllThreadsAndCopies) {
  const auto source = std::make_shared<const Counting>(500);
  const CachedDataset data(source);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      threads.emplace_back([copy = data, seed] {
        const std::vector<std::int64_t> order = sample_order(500, true, seed, 0);
        for (std::size_t at = 0; at < order.size(); at += 20) {
          const auto part = std::span(order).subspan(at, 20);
          EXPECT_EQ(labels_of(copy.rows(part)), std::vector(part.begin(), part.end()));
        }
      });
  }
  EXPECT_EQ(data.cached(), 500);
  const std::int64_t before = source->read;
  EXPECT_EQ(labels_of(data.rows(all_of(500))), all_of(500));
  EXPECT_EQ(source->read, before);
}

TEST(CachedDataset, BehindRandomTransformsKeepsWhatComesBefore) {
  const auto source = std::make_shared<const Counting>(20);
  const LoaderOptions options{
      .batch = 4,
      .seed = 1,
      .transform =
          [](Sample sample, Generator& generator) {
            return Sample{Tensor::full({1}, sample.targets.item() + generator.random()), sample.targets};
          },
      .workers = 2};
  Loader cached(CachedDataset(source), options), plain(numbered(20), options);
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (const auto batch = plain.next()) EXPECT_EQ(cached.next()->features.to_vector(), batch->features.to_vector());
    EXPECT_FALSE(cached.next());
  }
  EXPECT_EQ(source->read, 20);
}

}  // namespace
}  // namespace everyo
