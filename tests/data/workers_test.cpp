#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "data/damaged.h"
#include "data/numbered.h"
#include "everyo/data.h"
#include "everyo/events.h"

namespace everyo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Features [4, index's draws], so that a wrong generator, sample or order shows.
Sample draw(Sample sample, Generator& generator) {
  const auto x = sample.features.data<float>();
  const Tensor out = Tensor::empty({4});
  const auto to = out.data<float>();
  to[0] = x[0];
  to[1] = static_cast<float>(generator.normal());
  to[2] = static_cast<float>(generator.random());
  to[3] = x[1];
  return {out, sample.targets};
}

/// All that two epochs give, value by value.
std::vector<double> two_epochs(Loader& loader) {
  std::vector<double> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [x, y] : loader)
      for (const Tensor& part : {x, y})
        for (const double value : part.to_vector()) all.push_back(value);
  return all;
}

TEST(Workers, NumberAndPrefetchChangeNoBit) {
  for (const bool shuffle : {false, true})
    for (const bool transformed : {false, true}) {
      LoaderOptions options{.batch = 8, .shuffle = shuffle, .seed = 7};
      if (transformed) options.transform = draw;
      Loader alone(numbered(50), options);
      const std::vector<double> expected = two_epochs(alone);
      for (const std::int32_t workers : {1, 2, 4})
        for (const std::int32_t prefetch : {0, 1, 20}) {
          options.workers = workers;
          options.prefetch = prefetch;
          Loader loader(numbered(50), options);
          EXPECT_EQ(two_epochs(loader), expected) << shuffle << transformed << workers << ' ' << prefetch;
          EXPECT_EQ(loader.epoch(), 2);
        }
    }
}

TEST(Workers, ARandomTransformDrawsByEpochAndSampleAlone) {
  const LoaderOptions options{.batch = 8, .shuffle = true, .seed = 7, .transform = draw, .workers = 2};
  Loader loader(numbered(20), options);
  std::vector<std::vector<double>> first(20), second(20);
  for (auto* const epoch : {&first, &second})
    for (const auto& [x, y] : loader)
      for (std::int64_t row = 0; row < x.shape()[0]; ++row) {
        const auto index = static_cast<std::size_t>(y.data<std::int64_t>()[static_cast<std::size_t>(row)]);
        const auto values = x.data<float>().subspan(static_cast<std::size_t>(4 * row), 4);
        (*epoch)[index].assign(values.begin(), values.end());
      }
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto index = static_cast<std::size_t>(i);
    Generator generator = sample_generator(7, 0, i);
    EXPECT_EQ(first[index][1], static_cast<float>(generator.normal()));
    EXPECT_NE(first[index][1], second[index][1]);
  }
  EXPECT_NE(sample_generator(7, 0, 0).next_uint64(), Generator(7).next_uint64());
}

TEST(Workers, L03_StopInMidEpochGoesOnAtTheNextUnseenSampleWithOtherWorkers) {
  LoaderOptions options{.batch = 4, .shuffle = true, .seed = 3, .transform = draw};
  Loader whole(numbered(30), options);
  std::vector<std::vector<double>> expected;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : whole) expected.push_back(batch.features.to_vector());
  for (std::size_t stop = 0; stop < expected.size(); ++stop)
    for (const auto& [before, after] : {std::pair{0, 3}, {3, 0}, {2, 4}}) {
      options.workers = before;
      Loader first(numbered(30), options);
      for (std::size_t given = 0; given < stop;)
        if (first.next()) ++given;
      const StateTree state = first.state();  // workers are some batches ahead, and that is not part of it
      options.workers = after;
      Loader second(numbered(30), options);
      second.next();
      second.load(state);
      std::vector<std::vector<double>> rest;
      while (second.epoch() < 2)
        if (const auto batch = second.next()) rest.push_back(batch->features.to_vector());
      EXPECT_EQ(rest, std::vector(expected.begin() + static_cast<std::ptrdiff_t>(stop), expected.end())) << stop;
    }
}

TEST(Workers, D17_OrderChangesByEpochAndIsOneOnAllRanks) {
  std::vector<std::vector<std::int64_t>> epochs;
  for (const std::int32_t world : {1, 3}) {
    std::vector<Loader> ranks;
    for (std::int32_t rank = 0; rank < world; ++rank)
      ranks.emplace_back(
          numbered(20),
          LoaderOptions{.batch = 6, .shuffle = true, .seed = 1, .rank = rank, .world_size = world, .workers = 1});
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> seen;
      for (std::int64_t step = 0; step < ranks[0].batches(); ++step)
        for (Loader& rank : ranks)
          for (const std::int64_t label : labels_of(*rank.next())) seen.push_back(label);
      for (Loader& rank : ranks) EXPECT_FALSE(rank.next());
      if (world == 1)
        epochs.push_back(seen);
      else
        EXPECT_EQ(seen, epochs[epoch]);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Workers, MakeNoMoreThanPrefetchAhead) {
  auto begun = std::make_shared<std::atomic<int>>(0);
  {
    Loader loader(numbered(400), {.batch = 4,
                                  .transform =
                                      [begun](Sample sample, Generator&) {
                                        ++*begun;
                                        return sample;
                                      },
                                  .workers = 2,
                                  .prefetch = 3});
    EXPECT_EQ(*begun, 0);  // nothing is made before the first is asked for
    ASSERT_TRUE(loader.next());
    while (*begun < 4 * (1 + 3)) std::this_thread::yield();
  }
  EXPECT_EQ(*begun, 4 * (1 + 3));
}

TEST(Workers, AnErrorComesWithItsBatchAndNamesTheSample) {
  for (const std::int32_t workers : {0, 3}) {
    Loader loader(numbered(12), {.batch = 4,
                                 .transform =
                                     [](Sample sample, Generator&) {
                                       if (sample.targets.item() == 6) throw ShapeError("six is odd");
                                       if (sample.targets.item() == 10) throw std::runtime_error("ten");
                                       return sample;
                                     },
                                 .workers = workers});
    EXPECT_THAT(labels_of(*loader.next()), ElementsAre(0, 1, 2, 3));
    for (int attempt = 0; attempt < 2; ++attempt) try {
        loader.next();
        FAIL();
      } catch (const SampleError& error) {
        EXPECT_EQ(error.sample(), 6);
        EXPECT_EQ(error.kind(), ErrorKind::shape);
        EXPECT_STREQ(error.what(), "[Loader] sample 6: six is odd");
        EXPECT_THROW(std::rethrow_if_nested(error), ShapeError);
        EXPECT_EQ(loader.position(), 4);
      }
    loader.seek(0, 8);
    try {
      loader.next();
      FAIL();
    } catch (const SampleError& error) {
      EXPECT_EQ(error.sample(), 10);
      EXPECT_THROW(std::rethrow_if_nested(error), std::runtime_error);
    }
    loader.seek(1);
    EXPECT_THAT(labels_of(*loader.next()), ElementsAre(0, 1, 2, 3));
  }
}

TEST(Workers, AnErrorOfTheDataSetIsTracedToItsSample) {
  for (const std::int32_t workers : {0, 2}) {
    Loader loader(Damaged(), {.batch = 4, .workers = workers});
    EXPECT_THAT(labels_of(*loader.next()), ElementsAre(0, 1, 2, 3));
    const auto message = [&]() -> std::string {
      try {
        loader.next();
      } catch (const SampleError& error) {
        return error.what();
      }
      return "no error";
    };
    EXPECT_EQ(message(), "[Loader] sample 5: unreadable");
    loader.seek(0, 8);
    EXPECT_THAT(message(),
                HasSubstr("sample 9: [Loader] the data set gave features (0, 2) and targets (0,) for 1 indices"));
  }
}

TEST(Workers, ATransformGivesOneShape) {
  Loader loader(numbered(4), {.batch = 4, .transform = [](Sample sample, Generator&) {
                                return Sample{Tensor::zeros({sample.targets.item() < 2 ? 3 : 2}), sample.targets};
                              }});
  try {
    loader.next();
    FAIL();
  } catch (const SampleError& error) {
    EXPECT_STREQ(
        error.what(),
        "[Loader] sample 2: the transform's features of a row are float32 (2,), of those before float32 (3,); need one "
        "shape and dtype");
  }
}

TEST(Workers, EndCleanlyAtAnyTime) {
  for (int given = 0; given < 6; ++given) {
    Loader loader(numbered(40), {.batch = 4,
                                 .transform =
                                     [](Sample sample, Generator&) {
                                       std::this_thread::sleep_for(std::chrono::microseconds(100));
                                       return sample;
                                     },
                                 .workers = 3});
    for (int i = 0; i < given; ++i) loader.next();
    if (given % 2 == 1) loader.seek(0, 12);  // gives up what is being made
    Loader moved = std::move(loader);
    if (given == 5) {
      EXPECT_THAT(labels_of(*moved.next()), ElementsAre(12, 13, 14, 15));
    }
  }
}

TEST(Workers, AForkedChildBeginsItsOwn) {
  Loader loader(numbered(40), {.batch = 4, .workers = 2});
  loader.next();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool right = labels_of(*loader.next()) == std::vector<std::int64_t>{4, 5, 6, 7};
    right = right && labels_of(*loader.next()) == std::vector<std::int64_t>{8, 9, 10, 11};
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(labels_of(*loader.next()), ElementsAre(4, 5, 6, 7));
}

TEST(Workers, TheCallersModesDoNotReachATransform) {
  for (const std::int32_t workers : {0, 2}) {
    Loader loader(
        numbered(8),
        {.batch = 4,
         .transform =
             [](Sample sample, Generator&) {
               const Context& now = context();
               return Sample{Tensor::full({3}, now.grad || now.autocast || now.step != 0 || now.meta), sample.targets};
             },
         .workers = workers});
    const Scoped<&Context::step> step(5);
    const Scoped<&Context::autocast> autocast(true);
    EXPECT_THAT(loader.next()->features.to_vector(), Each(0));
    EXPECT_EQ(context().step, 5u);
  }
}

TEST(Workers, WaitingIsAnEventOfTheCallers) {
  for (const std::int32_t workers : {0, 2}) {
    Loader loader(numbered(10), {.batch = 4, .workers = workers});
    EventRecorder recorder;
    {
      const Scoped<&Context::events> on(&recorder);
      rest_of_epoch(loader);
    }
    const std::vector<RecordedEvent> events = recorder.take();
    ASSERT_EQ(events.size(), 3u);
    for (const RecordedEvent& event : events) {
      EXPECT_EQ(event.name, "data");
      EXPECT_EQ(event.kind, EventKind::data);
      EXPECT_EQ(event.thread, events[0].thread);
    }
  }
}

TEST(Workers, AThreadThatCannotStartIsAnErrorOfTheLibrary) {
  Loader loader(numbered(8), {.batch = 4, .workers = 3});
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);  // more than there are addresses
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  std::string message;
  try {
    loader.next();
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::backend);
  }
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_THAT(message, AllOf(StartsWith("[Loader] cannot start worker 1 of 3: "), EndsWith("; use fewer workers")));
  EXPECT_THAT(labels_of(*loader.next()), ElementsAre(0, 1, 2, 3)) << "the loader is as it was";
  pthread_attr_destroy(&before);
  pthread_attr_destroy(&huge);
}

TEST(Workers, RefuseWhatCannotWork) {
  const auto message_of = [](const LoaderOptions& options) -> std::string {
    try {
      Loader loader(numbered(4), options);
    } catch (const ValueError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of({.workers = -1}), HasSubstr("workers -1 must be in 0..256"));
  EXPECT_THAT(message_of({.workers = 257}), HasSubstr("workers 257"));
  EXPECT_THAT(message_of({.prefetch = -1}), HasSubstr("prefetch -1"));
  EXPECT_THROW(Loader(std::shared_ptr<const Dataset>()), ValueError);
}

}  // namespace
}  // namespace everyo
