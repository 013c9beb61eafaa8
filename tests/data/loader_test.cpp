#include <gmock/gmock.h>

#include <algorithm>

#include "data/numbered.h"
#include "everyo/data.h"
#include "everyo/memory.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SampleOrder, IsNumPysPermutationOfSeedAndEpoch) {
  // numpy.random.default_rng([seed, epoch]).permutation(count)
  EXPECT_THAT(sample_order(10, true, 5, 0), ElementsAre(7, 6, 1, 3, 2, 4, 0, 9, 5, 8));
  EXPECT_THAT(sample_order(10, true, 5, 3), ElementsAre(9, 1, 0, 3, 4, 2, 7, 8, 6, 5));
  EXPECT_THAT(sample_order(10, true, (1ull << 40) + 5, 1), ElementsAre(9, 8, 4, 3, 0, 6, 7, 2, 5, 1));
  EXPECT_THAT(sample_order(6, true, 0, 0), ElementsAre(3, 2, 5, 4, 0, 1));
  EXPECT_THAT(sample_order(3, false, 5, 7), ElementsAre(0, 1, 2));
}

TEST(Loader, GivesBatchesInOrderAndThenTheNextEpoch) {
  Loader loader(numbered(5), {.batch = 2});
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(loader.samples(), 5);
  EXPECT_THAT(rest_of_epoch(loader), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(loader.position(), 0);
  EXPECT_EQ(rest_of_epoch(loader).size(), 3u);
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(Loader, DropLastLeavesOutAShortBatchOnly) {
  Loader five(numbered(5), {.batch = 2, .drop_last = true});
  EXPECT_THAT(rest_of_epoch(five), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  Loader four(numbered(4), {.batch = 2, .drop_last = true});
  EXPECT_EQ(rest_of_epoch(four).size(), 2u);
}

TEST(Loader, ShufflesByTheOrderOfTheEpochAndKeepsRowsTogether) {
  Loader loader(numbered(10), {.batch = 4, .shuffle = true, .seed = 5});
  for (const std::int64_t epoch : {0, 1}) {
    std::vector<std::int64_t> seen;
    for (const auto& [x, y] : loader) {
      const auto features = x.data<float>();
      const auto labels = y.data<std::int64_t>();
      for (std::size_t i = 0; i < labels.size(); ++i) {
        seen.push_back(labels[i]);
        EXPECT_EQ(features[2 * i], static_cast<float>(labels[i]));
        EXPECT_EQ(features[2 * i + 1], static_cast<float>(-labels[i]));
      }
    }
    EXPECT_EQ(seen, sample_order(10, true, 5, epoch));
  }
}

TEST(Loader, RanksAreAViewOfOneOrder) {
  for (const std::int32_t world : {1, 2, 3, 4, 7}) {
    std::vector<std::int64_t> together;
    std::vector<Loader> ranks;
    for (std::int32_t rank = 0; rank < world; ++rank)
      ranks.emplace_back(numbered(11),
                         LoaderOptions{.batch = 4, .shuffle = true, .seed = 1, .rank = rank, .world_size = world});
    for (std::int64_t i = 0; i < ranks[0].batches(); ++i)
      for (const Loader& rank : ranks) {
        EXPECT_EQ(rank.batches(), 3);
        const std::vector<std::int64_t> part = labels_of(rank.batch(i));
        together.insert(together.end(), part.begin(), part.end());
      }
    EXPECT_EQ(together, sample_order(11, true, 1, 0)) << world;
  }
}

TEST(Loader, ARankMayHaveNoRowsInAShortBatch) {
  Loader loader(numbered(5), {.batch = 4, .rank = 1, .world_size = 2});
  const Batch last = loader.batch(1);
  EXPECT_EQ(last.features.shape(), (Shape{0, 2}));
  EXPECT_EQ(last.targets.shape(), (Shape{0}));
}

TEST(Loader, PaddingGivesAllRanksAsManyRowsAndSaysWhichCount) {
  for (const std::int32_t world : {1, 2, 3, 7}) {
    std::vector<std::int64_t> counted;
    for (std::int64_t i = 0; i < 3; ++i) {
      std::int64_t rows = -1;
      for (std::int32_t rank = 0; rank < world; ++rank) {
        const Loader loader(
            numbered(11),
            {.batch = 5, .shuffle = true, .seed = 1, .rank = rank, .world_size = world, .uneven = Uneven::pad});
        ASSERT_EQ(loader.batches(), 3);
        const Batch part = loader.batch(i);
        if (rank > 0) {
          EXPECT_EQ(part.rows(), rows) << "of rank 0";
        }
        rows = part.rows();
        const std::vector<std::int64_t> labels = labels_of(part);
        counted.insert(counted.end(), labels.begin(), labels.begin() + part.counted());
        for (std::int64_t row = part.counted(); row < rows; ++row)  // what is repeated is of this batch
          EXPECT_THAT(std::vector(counted.begin() + 5 * i, counted.end()),
                      testing::Contains(labels[static_cast<std::size_t>(row)]));
      }
      EXPECT_EQ(rows, ((i < 2 ? 5 : 1) + world - 1) / world);
    }
    EXPECT_EQ(counted, sample_order(11, true, 1, 0)) << world;
  }
}

TEST(Loader, DroppingGivesAllRanksAsManyRowsAndLeavesTheRestOut) {
  std::vector<Loader> ranks;
  for (std::int32_t rank = 0; rank < 3; ++rank)
    ranks.emplace_back(numbered(12), LoaderOptions{.batch = 5, .rank = rank, .world_size = 3, .uneven = Uneven::drop});
  EXPECT_EQ(ranks[0].samples(), 10) << "the last batch of two rows is too small for three ranks";
  EXPECT_THAT(rest_of_epoch(ranks[0]), ElementsAre(ElementsAre(0), ElementsAre(5)));
  EXPECT_THAT(rest_of_epoch(ranks[1]), ElementsAre(ElementsAre(1), ElementsAre(6)));
  EXPECT_THAT(rest_of_epoch(ranks[2]), ElementsAre(ElementsAre(2), ElementsAre(7)));
  // A place that batches of another size left: what is left of the epoch is too little for a batch.
  Loader resumed(numbered(12), {.batch = 3, .world_size = 3, .uneven = Uneven::drop});
  resumed.seek(0, 10);
  EXPECT_FALSE(resumed.next());
  EXPECT_EQ(resumed.epoch(), 1);
}

TEST(Loader, ARankWithoutRowsKnowsTheShapeOfATransform) {
  const Loader loader(numbered(5), {.batch = 4, .rank = 1, .world_size = 2, .transform = [](Sample sample, Generator&) {
                                      return Sample{Tensor::zeros({3, 2}), sample.targets};
                                    }});
  EXPECT_EQ(loader.batch(1).features.shape(), (Shape{0, 3, 2}));
}

TEST(Loader, AnyBatchIsReachableWithoutMoving) {
  Loader loader(numbered(10), {.batch = 3, .shuffle = true, .seed = 2});
  const auto third = labels_of(loader.batch(2));
  EXPECT_EQ(loader.position(), 0);
  EXPECT_EQ(rest_of_epoch(loader)[2], third);
  EXPECT_THROW(static_cast<void>(loader.batch(4)), ValueError);
  EXPECT_THROW(static_cast<void>(loader.batch(-1)), ValueError);
}

// What comes after a stop in the middle of an epoch is the next unseen sample, on any number of ranks.
TEST(Loader, L03_ContinuesAtTheNextUnseenSample) {
  const LoaderOptions options{.batch = 4, .shuffle = true, .seed = 3};
  Loader whole(numbered(14), options);
  rest_of_epoch(whole);
  const auto second_epoch = rest_of_epoch(whole);

  Loader resumed(numbered(14), options);
  resumed.seek(1, 8);
  EXPECT_THAT(rest_of_epoch(resumed), ElementsAre(second_epoch[2], second_epoch[3]));
  EXPECT_EQ(resumed.epoch(), 2);

  LoaderOptions half = options;
  half.world_size = 2;
  Loader first(numbered(14), half);
  first.seek(1, 8);
  auto rows = labels_of(*first.next());
  half.rank = 1;
  Loader second(numbered(14), half);
  second.seek(1, 8);
  const auto others = labels_of(*second.next());
  rows.insert(rows.end(), others.begin(), others.end());
  EXPECT_EQ(rows, second_epoch[2]);
}

TEST(Loader, StateIsThePlaceInTheOrder) {
  Loader loader(numbered(14), {.batch = 4, .shuffle = true, .seed = 3});
  rest_of_epoch(loader);
  loader.next();
  const StateTree state = loader.state();
  const auto rest = rest_of_epoch(loader);

  Loader resumed(numbered(14), {.batch = 4, .shuffle = true, .seed = 3});
  resumed.load(state);
  EXPECT_EQ(resumed.epoch(), 1);
  EXPECT_EQ(resumed.position(), 4);
  EXPECT_EQ(rest_of_epoch(resumed), rest);

  Loader smaller(numbered(14), {.batch = 2, .shuffle = true, .seed = 3});  // another batch size: the same order goes on
  smaller.load(state);
  EXPECT_EQ(rest_of_epoch(smaller)[0], (std::vector<std::int64_t>{rest[0][0], rest[0][1]}));
}

TEST(Loader, RefusesTheStateOfAnotherOrder) {
  const StateTree state = Loader(numbered(14), {.batch = 4, .shuffle = true, .seed = 3}).state();
  const auto message_of = [](std::int64_t samples, const LoaderOptions& options,
                             const StateTree& saved) -> std::string {
    Loader loader(numbered(samples), options);
    loader.seek(2, 4);
    try {
      loader.load(saved);
    } catch (const StateError& error) {
      EXPECT_EQ(loader.epoch(), 2);
      EXPECT_EQ(loader.position(), 4);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of(14, {.shuffle = true, .seed = 3}, state), "no error");
  EXPECT_THAT(message_of(13, {.shuffle = true, .seed = 3}, state), HasSubstr("samples 14, this loader has 13"));
  EXPECT_THAT(message_of(14, {.seed = 3}, state), HasSubstr("shuffle true"));
  EXPECT_THAT(message_of(14, {.shuffle = true, .seed = 4}, state), HasSubstr("seed 3, this loader has 4"));
  StateTree damaged = state;
  damaged["position"] = 15;
  EXPECT_THAT(message_of(14, {.shuffle = true, .seed = 3}, damaged),
              HasSubstr("the state's epoch 0, position 15 does not exist"));
  for (const auto& [epoch, refused] :
       {std::pair{(std::int64_t{1} << 62) + 1, true}, {std::int64_t{1} << 62, false}, {std::int64_t{-1}, true}}) {
    damaged = state;
    damaged["epoch"] = epoch;
    const std::string message = message_of(14, {.shuffle = true, .seed = 3}, damaged);
    EXPECT_EQ(message != "no error", refused) << message;
    Loader loader(numbered(14), {.batch = 4});
    if (refused)
      EXPECT_THROW(loader.seek(epoch), ValueError);
    else
      loader.seek(epoch);
  }
}

TEST(Loader, CopiesNothingButTheGatheredRowsAsInput) {
  const ArrayDataset data = numbered(64);
  Loader shuffled(data, {.batch = 16, .shuffle = true});
  const auto before = memory::report()[MemoryCategory::input].now;
  const Batch batch = shuffled.batch(0);
  const auto after = memory::report()[MemoryCategory::input].now;
  EXPECT_GE(after - before, 16 * (2 * 4 + 8));
  EXPECT_LE(after - before, 2 * (256 + 16 * (2 * 4 + 8)));  // two blocks, rounded up by the allocator
  Loader plain(data, {.batch = 16});
  EXPECT_EQ(plain.batch(1).features.bytes(), data.features.bytes() + 16 * 2 * 4);
  EXPECT_EQ(memory::report()[MemoryCategory::input].now, after);
}

TEST(Loader, RefusesWhatCannotWork) {
  const auto message_of = [](std::int64_t samples, const LoaderOptions& options) -> std::string {
    try {
      Loader loader(numbered(samples), options);
    } catch (const ValueError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of(4, {.batch = 0}), HasSubstr("batch_size 0"));
  EXPECT_THAT(message_of(4, {.rank = 2, .world_size = 2}), HasSubstr("rank 2 of world size 2"));
  EXPECT_THAT(message_of(0, {}), HasSubstr("no samples"));
  EXPECT_THAT(message_of(4, {.batch = 2, .world_size = 3, .uneven = Uneven::drop}), HasSubstr("leaves no rows"));
  EXPECT_THAT(message_of(4, {.batch = 5, .drop_last = true}), HasSubstr("drop_last leaves no batches"));
  Loader loader(numbered(4), {.batch = 2});
  EXPECT_THROW(loader.seek(-1), ValueError);
  EXPECT_THROW(loader.seek(0, 5), ValueError);
}

TEST(ArrayDataset, NeedsARowForEachRow) {
  try {
    ArrayDataset(Tensor::zeros({3, 2}), Tensor::zeros({4}, int64));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("features (3, 2) and targets (4,) must have the same number of samples"));
  }
  EXPECT_THROW(ArrayDataset(Tensor::zeros({}), Tensor::zeros({1})), ShapeError);
  ArrayDataset data = numbered(4);
  EXPECT_THAT(data.rows(std::vector<std::int64_t>{3, 0, 3}).targets.to_vector(), ElementsAre(3, 0, 3));
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{4})), ShapeError);
  data.targets = numbered(2).targets;
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{3})), ShapeError);
  EXPECT_THROW(static_cast<void>(data.range(0, 4)), ShapeError);
  EXPECT_THROW(static_cast<void>(ArrayDataset().rows({})), ShapeError);
}

TEST(ArrayDataset, OfABatchHasTheRowsThatCount) {
  Loader loader(numbered(7), {.batch = 7, .rank = 1, .world_size = 2, .uneven = Uneven::pad});
  Batch batch = *loader.next();
  ASSERT_EQ(batch.padding, 1);
  const ArrayDataset data(batch);
  EXPECT_THAT(data.targets.to_vector(), ElementsAre(4, 5, 6));
  EXPECT_THAT(data.features.to_vector(), ElementsAre(4, -4, 5, -5, 6, -6));
  EXPECT_EQ(data.features.bytes(), batch.features.bytes()) << "they are shared";
  for (const std::int64_t padding : {-1, 5}) {
    batch.padding = padding;
    EXPECT_THROW(ArrayDataset{batch}, ShapeError);
  }
}

}  // namespace
}  // namespace everyo
