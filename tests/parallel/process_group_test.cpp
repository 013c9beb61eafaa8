#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "everyo/half.h"
#include "everyo/parallel.h"
#include "parallel/ranks.h"

// What ranks exchange, on both transports and in worlds of one to five.
namespace everyo {
namespace {

using testing_parallel::require, testing_parallel::World;

class Exchange : public testing_parallel::OnWorlds {};

// Element i of rank r: numbers whose sum depends on its order in float32.
float value(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 1.1 + static_cast<double>(i % 977) * 0.37) * (rank % 2 == 0 ? 1.f : 1e-4f);
}

template <class T>
void check_sums(ProcessGroup& group, std::size_t n) {
  std::vector<T> data(n);
  for (std::size_t i = 0; i < n; ++i) data[i] = narrow<T>(value(group.rank(), i));
  group.all_reduce(std::span(data));
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int r = 0; r < group.world_size(); ++r) sum += static_cast<double>(widen(narrow<T>(value(r, i))));
    const T right = narrow<T>(sum);
    require(std::memcmp(&data[i], &right, sizeof(T)) == 0,
            "all_reduce of " + std::to_string(n) + " at " + std::to_string(i));
  }
}

// From nothing to several chunks, with ends that no rank or vector divides.
constexpr std::size_t sizes[] = {0, 1, 3, 31, 256, 2048, 2049, 65536, 100'003, 1'000'001};

TEST_P(Exchange, SumsInFloat64InRankOrderAndRoundsOnce) {
  on_all([](ProcessGroup& group) {
    for (const std::size_t n : sizes) check_sums<float>(group, n);
    for (const std::size_t n : {5u, 5000u, 70'001u}) {
      check_sums<double>(group, n);
      check_sums<Float16>(group, n);
      check_sums<BFloat16>(group, n);
    }
  });
}

TEST_P(Exchange, ReducesEveryDtypeInEveryWay) {
  on_all([](ProcessGroup& group) {
    const int n = group.world_size(), r = group.rank();
    const auto integers = [&]<class T>(T) {
      for (const auto& [op, right] :
           {std::pair(ReduceOp::sum, n * (n + 1) / 2), std::pair(ReduceOp::min, 1), std::pair(ReduceOp::max, n)}) {
        std::vector<T> data(4000, static_cast<T>(r + 1));
        group.all_reduce(std::span(data), op);
        require(data == std::vector<T>(4000, static_cast<T>(right)), "integers");
      }
    };
    integers(std::int64_t{});
    integers(std::int32_t{});
    integers(std::uint8_t{});
    float mean[] = {static_cast<float>(r), 1.5f};
    group.all_reduce(std::span(mean), ReduceOp::mean);
    require(mean[0] == static_cast<float>((n - 1) / 2.0) && mean[1] == 1.5f, "mean");
    float nan[] = {r == n - 1 ? std::numeric_limits<float>::quiet_NaN() : 1.f};
    group.all_reduce(std::span(nan), ReduceOp::max);
    require(nan[0] != nan[0], "NaN wins");
    bool any[] = {r == 0};
    group.all_reduce(std::as_writable_bytes(std::span(any)), boolean, ReduceOp::max);
    require(any[0], "any");
  });
}

TEST_P(Exchange, MovesPartsToWhereTheyBelong) {
  on_all([](ProcessGroup& group) {
    const auto n = static_cast<std::size_t>(group.world_size());
    const int rank = group.rank();
    for (const std::size_t size : {0u, 1u, 1000u, 300'000u}) {
      std::vector<std::int32_t> part(size), all(size * n);
      std::iota(part.begin(), part.end(), 1000 * rank);
      const auto right = [&](std::size_t r, std::size_t i) { return static_cast<std::int32_t>(1000 * r + i); };
      const auto whole = [&](const std::vector<std::int32_t>& data) {
        for (std::size_t r = 0; r < n; ++r)
          for (std::size_t i = 0; i < size; ++i)
            if (data[r * size + i] != right(r, i)) return false;
        return true;
      };
      group.all_gather(std::span<const std::int32_t>(part), std::span(all));
      require(whole(all), "all_gather");
      const int root = group.world_size() - 1;
      std::vector<std::int32_t> at_root(rank == root ? size * n : 0);
      group.gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(at_root)), root);
      require(rank != root || whole(at_root), "gather");
      std::vector<std::int32_t> back(size, -1);
      group.scatter(std::as_bytes(std::span(at_root)), std::as_writable_bytes(std::span(back)), root);
      require(back == part, "scatter");
      group.broadcast(std::span(back), root);
      for (std::size_t i = 0; i < size; ++i) require(back[i] == right(static_cast<std::size_t>(root), i), "broadcast");
      std::vector<float> data(size * n), mine(size);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i);
      std::vector<float> reduced = data;
      group.all_reduce(std::span(reduced));
      group.reduce_scatter(std::span<const float>(data), std::span(mine));
      require(std::equal(mine.begin(), mine.end(), reduced.begin() + static_cast<std::ptrdiff_t>(size) * rank),
              "reduce_scatter has the bits of all_reduce");
    }
    group.barrier();
  });
}

TEST_P(Exchange, SendsInARing) {
  on_all([](ProcessGroup& group) {
    const int n = group.world_size(), rank = group.rank();
    if (n == 1) return;
    for (const std::size_t size : {0u, 7u, 400'000u}) {
      std::vector<std::int32_t> out(size, rank), in(size, -1);
      const int next = (rank + 1) % n, last = (rank + n - 1) % n;
      const auto send = [&] { group.send(std::as_bytes(std::span(out)), next); };
      const auto receive = [&] { group.receive(std::as_writable_bytes(std::span(in)), last); };
      if (rank == 0) {
        send();
        receive();
      } else {
        receive();
        send();
      }
      require(in == std::vector<std::int32_t>(size, last), "ring");
      group.barrier();
    }
  });
}

TEST_P(Exchange, RunsBesideItsCaller) {
  on_all([](ProcessGroup& group) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 20; ++i) data.emplace_back(1 + i * 5000, static_cast<float>(group.rank() + 1));
    for (auto& d : data)
      works.push_back(group.all_reduce_async(std::as_writable_bytes(std::span(d)), float32, ReduceOp::sum));
    float after[] = {1};
    group.all_reduce(std::span(after));  // comes behind them
    require(after[0] == static_cast<float>(group.world_size()), "a call behind asynchronous ones");
    const int n = group.world_size();
    for (std::size_t i = 0; i < data.size(); ++i) {
      works[i].wait();
      require(works[i].done() && data[i] == std::vector<float>(data[i].size(), static_cast<float>(n * (n + 1) / 2)),
              "asynchronous");
    }
  });
}

TEST_P(Exchange, ReducesSharedMemoryWhereItLies) {
  on_all([](ProcessGroup& group) {
    const std::size_t n = 500'001;
    const Ref<Storage> storage = group.shared_memory(n * sizeof(float));
    const std::span<float> shared(reinterpret_cast<float*>(storage->data()), n);
    std::vector<float> own(n);
    for (std::size_t i = 0; i < n; ++i) shared[i] = own[i] = value(group.rank(), i);
    group.all_reduce(shared);
    group.all_reduce(std::span(own));
    require(std::ranges::equal(shared, own), "shared memory and any memory have the same bits");
  });
}

TEST_P(Exchange, SplitsInPartsThatWorkAlone) {
  on_all([](ProcessGroup& group) {
    const int rank = group.rank(), n = group.world_size();
    const std::unique_ptr<ProcessGroup> part = group.split(rank % 2, -rank);
    int members = 0, sum = 0;
    for (int r = rank % 2; r < n; r += 2) ++members, sum += r;
    require(part->world_size() == members, "members");
    require(part->rank() == members - 1 - rank / 2, "order by key");
    require(group.split(0, 7)->rank() == rank, "order by rank at equal keys");
    std::int64_t data[] = {rank};
    part->all_reduce(std::span(data));
    require(data[0] == sum, "sum in a part");
    require((group.split(rank == 0 ? -1 : 0) == nullptr) == (rank == 0), "no part for a negative colour");
    std::int64_t all[] = {1};
    group.all_reduce(std::span(all));
    require(all[0] == n, "the whole group still works");
  });
}

TEST_P(Exchange, RefusesWhatDoesNotFit) {
  on_all([](ProcessGroup& group) {
    const auto throws = [](auto&& call) {
      try {
        call();
      } catch (const ShapeError&) {
        return true;
      } catch (const DTypeError&) {
        return true;
      } catch (const ValueError&) {
        return true;
      }
      return false;
    };
    float data[4] = {};
    std::int32_t whole[4] = {};
    const auto bytes = std::as_writable_bytes(std::span(data));
    require(throws([&] { group.broadcast(std::span(data), group.world_size()); }), "root");
    require(throws([&] { group.all_reduce(bytes.first(5), float32, ReduceOp::sum); }), "bytes");
    require(throws([&] { group.all_reduce(std::span(whole), ReduceOp::mean); }), "mean of integers");
    require(throws([&] { group.send(bytes, group.rank()); }), "to itself");
    require(throws([&] { group.receive(bytes, group.world_size()); }), "from nobody");
    std::vector<std::byte> other(17 * static_cast<std::size_t>(group.world_size()));
    require(throws([&] { group.all_gather(std::span<const std::byte>(bytes), std::span(other)); }), "parts");
    group.barrier();  // and nothing is lost by it
  });
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const int ranks : {1, 2, 3, 5}) {
    all.push_back({"threads", run_threads, ranks});
    all.push_back({"processes", run_processes, ranks});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Worlds, Exchange, ::testing::ValuesIn(worlds()),
                         [](const auto& world) { return name_of(world.param); });

TEST(ProcessGroup, OfOneRankIsTheIdentity) {
  const std::unique_ptr<ProcessGroup> group = single_process_group();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->world_size(), 1);
  EXPECT_EQ(group->transport(), "one");
  float data[] = {1, 2}, copy[2] = {}, rows[2] = {};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max})
    group->all_reduce(std::span(data), op);
  group->broadcast(std::span(data));
  EXPECT_THAT(data, ::testing::ElementsAre(1, 2));
  group->reduce_scatter(std::span(data), std::span(copy));
  group->all_gather(std::span(data), std::span(rows));
  EXPECT_THAT(copy, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(rows, ::testing::ElementsAre(1, 2));
  group->all_reduce_async(std::as_writable_bytes(std::span(data)), float32, ReduceOp::sum).wait();
  group->barrier();
  group->barrier_async().wait();
  float gathered[2] = {}, part[2] = {};
  group->gather_async(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(gathered)), 0).wait();
  group->scatter_async(std::as_bytes(std::span(gathered)), std::as_writable_bytes(std::span(part)), 0).wait();
  EXPECT_THAT(part, ::testing::ElementsAre(1, 2));
  EXPECT_THROW((void)group->gather_async({}, {}, 1), ValueError);
}

TEST(ProcessGroup, OfOneRankChecksItsArguments) {
  const std::unique_ptr<ProcessGroup> group = single_process_group();
  float data[4] = {}, small[3] = {};
  std::int64_t integers[2] = {};
  bool flags[2] = {};
  EXPECT_THROW(group->all_gather(std::span(data), std::span(small)), ShapeError);
  EXPECT_THROW(group->reduce_scatter(std::span(data), std::span(small)), ShapeError);
  EXPECT_THROW(group->all_reduce(std::as_writable_bytes(std::span(data)).first(5), float32, ReduceOp::sum), ShapeError);
  EXPECT_THROW(group->all_reduce(std::span(integers), ReduceOp::mean), DTypeError);
  EXPECT_THROW(group->all_reduce(std::span(flags), ReduceOp::sum), DTypeError);
  EXPECT_NO_THROW(group->all_reduce(std::span(flags), ReduceOp::max));
  EXPECT_NO_THROW(group->all_reduce(std::span(integers), ReduceOp::sum));
  for (const int root : {-1, 1}) {
    try {
      group->broadcast(std::span(data), root);
      ADD_FAILURE() << root;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::distributed);
    }
  }
}

}  // namespace
}  // namespace everyo
