#include <gmock/gmock.h>

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "everyo/autograd.h"
#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/parallel.h"
#include "parallel/ranks.h"

// Where exchanges could go wrong: the edges of pieces, many ranks, calls of different kinds in turn, many groups.
namespace everyo {
namespace {

using testing_parallel::on_both_transports, testing_parallel::require, testing_parallel::runners;

std::vector<std::int32_t> numbered(std::size_t n, int rank) {
  std::vector<std::int32_t> data(n);
  std::iota(data.begin(), data.end(), 1000 * rank);
  return data;
}

// Every collective of n elements, whole numbers, so that every result is known.
void exchange_all(ProcessGroup& group, std::size_t n) {
  const auto ranks = static_cast<std::size_t>(group.world_size());
  const std::string of = " of " + std::to_string(n) + " on " + std::to_string(ranks);
  std::vector<std::int32_t> sum = numbered(n, group.rank());
  group.all_reduce(std::span(sum));
  const auto base = static_cast<std::int32_t>(1000 * ranks * (ranks - 1) / 2), count = static_cast<std::int32_t>(ranks);
  for (std::size_t i = 0; i < n; ++i) require(sum[i] == base + count * static_cast<std::int32_t>(i), "all_reduce" + of);
  const int root = group.world_size() / 2;
  std::vector<std::int32_t> copy = numbered(n, group.rank());
  group.broadcast(std::span(copy), root);
  require(copy == numbered(n, root), "broadcast" + of);
  const std::vector<std::int32_t> own = numbered(n, group.rank());
  std::vector<std::int32_t> all(n * ranks);
  group.all_gather(std::span<const std::int32_t>(own), std::span(all));
  for (std::size_t r = 0; r < ranks; ++r)
    require(
        std::equal(all.begin() + static_cast<std::ptrdiff_t>(r * n),
                   all.begin() + static_cast<std::ptrdiff_t>((r + 1) * n), numbered(n, static_cast<int>(r)).begin()),
        "all_gather" + of);
  std::vector<std::int32_t> part(n);
  group.reduce_scatter(std::span<const std::int32_t>(all), std::span(part));
  for (std::size_t i = 0; i < n; ++i)
    require(part[i] == count * (1000 * group.rank() + static_cast<std::int32_t>(i)), "reduce_scatter" + of);
}

TEST(Corners, SizesAboutTheEdgesOfPieces) {
  constexpr std::size_t kilo = 1024 / sizeof(std::int32_t);
  for (const int ranks : {2, 3, 7}) {
    const auto n = static_cast<std::size_t>(ranks);
    on_both_transports(
        ranks,
        [&](ProcessGroup& group) {
          for (const std::size_t edge : {8 * kilo, 32 * kilo, 128 * kilo, n * 128 * kilo})
            for (const std::size_t size : {edge - 1, edge, edge + 1}) exchange_all(group, size);
        },
        Timeout(120));
  }
}

TEST(Corners, ManyMoreRanksThanProcessors) {
  on_both_transports(
      16,
      [](ProcessGroup& group) {
        for (const std::size_t size : {0u, 1u, 15u, 2049u, 40'000u}) exchange_all(group, size);
      },
      Timeout(120));
}

TEST(Corners, BothOfAPairMaySendFirstUpTo256Kilobytes) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{40} << 10, (std::size_t{256} << 10) - 1})
    on_both_transports(
        2,
        [&](ProcessGroup& group) {
          const std::vector<std::byte> out(bytes, static_cast<std::byte>(group.rank() + 1));
          std::vector<std::byte> in(bytes);
          group.send(out, 1 - group.rank());
          group.receive(in, 1 - group.rank());
          require(in == std::vector<std::byte>(bytes, static_cast<std::byte>(2 - group.rank())), "received");
        },
        Timeout(5));
}

TEST(Corners, AGroupMayGoOnceItsExchangesAreWaitedFor) {
  on_both_transports(2, [](ProcessGroup& group) {
    for (int i = 0; i < 200; ++i) {
      const auto part = group.split(0);
      float value[] = {static_cast<float>(group.rank())};
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));  // rank 0 has gone by then
      part->broadcast_async(std::as_writable_bytes(std::span(value)), 0).wait();
      require(value[0] == 0, "value");
    }
  });
}

TEST(Corners, CallsOfAllKindsInTurn) {
  on_both_transports(3, [](ProcessGroup& group) {
    const int rank = group.rank(), next = (rank + 1) % 3, last = (rank + 2) % 3;
    for (int round = 0; round < 20; ++round) {
      const std::size_t size = 100 + static_cast<std::size_t>(round) * 4000;
      std::vector<std::int32_t> a(size, rank), b(size, rank), c(size, rank), in(size);
      Work first = group.all_reduce_async(std::as_writable_bytes(std::span(a)), int32, ReduceOp::sum);
      Work second = group.broadcast_async(std::as_writable_bytes(std::span(b)), round % 3);
      group.all_reduce(std::span(c), ReduceOp::max);
      if (rank == 0) group.send(std::as_bytes(std::span(c)), next);
      group.receive(std::as_writable_bytes(std::span(in)), last);
      if (rank != 0) group.send(std::as_bytes(std::span(c)), next);
      second.wait();
      first.wait();
      using Values = std::vector<std::int32_t>;
      require(a == Values(size, 3) && b == Values(size, round % 3) && c == Values(size, 2) && in == c, "values");
    }
  });
}

TEST(Corners, EveryCollectiveRunsBesideItsCaller) {
  on_both_transports(3, [](ProcessGroup& group) {
    using Values = std::vector<std::int32_t>;
    const auto bytes = [](Values& v) { return std::as_writable_bytes(std::span(v)); };
    const int rank = group.rank();
    for (const std::size_t n : {0u, 1u, 1000u, 100'000u}) {
      Values part(n, rank), all(3 * n), at_one(rank == 1 ? 3 * n : 0), dealt(n), data, sums(n), ones(3 * n, 1);
      for (int r = 0; r < 3 && rank == 2; ++r) data.insert(data.end(), n, r);
      Work works[] = {group.gather_async(bytes(part), bytes(at_one), 1),
                      group.scatter_async(bytes(data), bytes(dealt), 2), group.barrier_async(),
                      group.reduce_scatter_async(bytes(ones), bytes(sums), int32, ReduceOp::sum),
                      group.all_gather_async(bytes(part), bytes(all))};
      for (std::size_t i = std::size(works); i-- > 0;) works[i].wait();
      Values ranks;
      for (int r = 0; r < 3; ++r) ranks.insert(ranks.end(), n, r);
      require(all == ranks && (rank != 1 || at_one == ranks), "gathered");
      require(dealt == Values(n, rank) && sums == Values(n, 3), "parts");
    }
  });
}

TEST(Corners, PartsOfPartsExchange) {
  on_both_transports(7, [](ProcessGroup& group) {
    const auto half = group.split(group.rank() < 4 ? 0 : 1, group.rank());
    const auto quarter = half->split(half->rank() % 2, -half->rank());
    const auto alone = quarter->split(quarter->rank());
    require(alone->world_size() == 1, "a group of one");
    for (ProcessGroup* part : {quarter.get(), half.get(), &group, quarter.get(), alone.get()})
      exchange_all(*part, 50'000);
  });
}

TEST(Corners, APartThatFailsNamesItsRankAndAsynchronousWorkThrows) {
  for (const auto run : runners)
    EXPECT_THROW(run(4,
                     [](ProcessGroup& group) {
                       const auto pair = group.split(group.rank() / 2);
                       std::vector<float> data(50'000);
                       if (group.rank() == 1) throw ValueError("[worker] no more");
                       Work work =
                           pair->all_reduce_async(std::as_writable_bytes(std::span(data)), float32, ReduceOp::sum);
                       if (group.rank() == 0) work.wait();
                       group.barrier();
                       return std::string();
                     },
                     {.timeout = Timeout(30)}),
                 DistributedError);
}

std::size_t lines_of(const char* file) {
  std::ifstream in(file);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);) ++count;
  return count;
}
std::size_t open_files() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

TEST(Corners, ManyRunsLeaveNeitherFilesNorMappings) {
  const auto round = [] {
    on_both_transports(3, [](ProcessGroup& group) {
      const auto memory = group.shared_memory(100'000);
      const auto part = group.split(group.rank() % 2);
      part->barrier();
      exchange_all(group, 10'000);
    });
  };
  round();
  const std::size_t files = open_files(), mappings = lines_of("/proc/self/maps");
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(open_files(), files);
  EXPECT_LE(lines_of("/proc/self/maps"),
            mappings + 16);  // threads' stacks and arenas may stay; 40 runs would be hundreds
}

// Pages of a group's memory file that hold something, in bytes.
std::int64_t bytes_of_memory_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:everyo")) {
      struct stat status {};
      if (stat(entry.path().c_str(), &status) == 0) return status.st_blocks * 512;
    }
  }
  return -1;
}

TEST(Corners, ManyModelsAndPartsInOneRunDoNotPileUp) {
  const auto results = run_processes(2,
                                     [](ProcessGroup& group) {
                                       const auto round = [&] {
                                         Sequential net(Linear(500, 500));  // 1 MB of gradients
                                         DataParallel parallel(net, group);
                                         mean(net(Tensor::ones({1, 500}))).backward();
                                         const auto part = group.split(0);
                                         exchange_all(*part, 100'000);
                                       };
                                       for (int i = 0; i < 3; ++i) round();
                                       group.barrier();
                                       const std::int64_t before = bytes_of_memory_file();
                                       for (int i = 0; i < 20; ++i) round();
                                       group.barrier();
                                       return std::to_string(bytes_of_memory_file() - before);
                                     },
                                     {.timeout = Timeout(60)});
  for (const std::string& grown : results) EXPECT_LT(std::stoll(grown), 8 << 20) << "20 rounds of about 4 MB";
}

TEST(Corners, D12_D13_NothingIsInDevShmAndNamesCannotCollide) {
  const auto listing = [] {
    std::vector<std::string> names;
    if (std::filesystem::is_directory("/dev/shm"))
      for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
        if (entry.path().filename().string().find("everyo") != std::string::npos) names.push_back(entry.path());
    return names;
  };
  const auto results = run_processes(2, [&](ProcessGroup& group) {
    const auto memory = group.shared_memory(8 << 20);
    group.barrier();
    std::string maps;
    std::ifstream in("/proc/self/maps");
    for (std::string line; std::getline(in, line);)
      if (line.find("/dev/shm") != std::string::npos) maps += line;
    return maps + std::to_string(listing().size());
  });
  EXPECT_THAT(results, ::testing::Each("0"));
  EXPECT_THAT(listing(), ::testing::IsEmpty());
}

TEST(Corners, D10_TwoJobsAtOnceDoNotMix) {
  std::vector<std::jthread> jobs;
  std::atomic<int> right{0};
  for (int job = 0; job < 2; ++job)
    jobs.emplace_back([&, job] {
      const auto results = run_processes(2,
                                         [job](ProcessGroup& group) {
                                           std::int64_t sum = 0;
                                           for (int i = 0; i < 200; ++i) {
                                             std::int64_t value[] = {job + 1};
                                             group.all_reduce(std::span(value));
                                             sum += value[0];
                                           }
                                           return std::to_string(sum);
                                         },
                                         {.timeout = Timeout(60)});
      right += static_cast<int>(std::ranges::count(results, std::to_string(400 * (job + 1))));
    });
  jobs.clear();
  EXPECT_EQ(right, 4);
}

TEST(Corners, ABackwardThatIsBrokenOffEndsTheGroup) {
  for (const auto run : runners) {
    try {
      run(2,
          [](ProcessGroup& group) {
            Sequential net(Linear(4, 4, {.seed = 1}), Tanh(), Linear(4, 4, {.seed = 2}));
            DataParallel parallel(net, group, {.bucket_bytes = 64});
            const auto step = [&] { mean(net(Tensor::ones({2, 4}))).backward(); };
            const auto hook = add_ready_hook(net.parameters()[0], [&](const Tensor&) {
              if (group.rank() == 1) throw ValueError("[hook] not this time");
            });
            try {
              step();
            } catch (const ValueError&) {  // and goes on as if nothing had been
              remove_ready_hook(net.parameters()[0], hook);
              net.zero_grad();
              step();
            }
            return std::string();
          },
          {.timeout = Timeout(20)});
      ADD_FAILURE() << "no error";
    } catch (const DistributedError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("was broken off"));
    }
  }
}

}  // namespace
}  // namespace everyo
