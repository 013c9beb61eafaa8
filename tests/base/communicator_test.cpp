#include "everyo/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "everyo/error.h"

namespace everyo {
namespace {

TEST(WorldOfOne, CollectivesAreTheIdentity) {
  const std::unique_ptr<Communicator> world = world_of_one();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->world_size(), 1);
  std::vector<float> data{1, 2, 3}, part(3), gathered(3);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
    world->all_reduce(std::span(data), op);
    EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
  }
  world->reduce_scatter(std::span(data), std::span(part));
  EXPECT_EQ(part, data);
  world->all_gather(std::span(data), std::span(gathered));
  EXPECT_EQ(gathered, data);
  world->broadcast(std::span(data));
  EXPECT_EQ(data, part);
  world->barrier();
}

TEST(WorldOfOne, ArgumentsAreChecked) {
  const std::unique_ptr<Communicator> world = world_of_one();
  std::array<float, 4> data{};
  std::array<float, 3> small{};
  std::array<std::int64_t, 2> integers{};
  std::array<bool, 2> flags{};
  EXPECT_THROW(world->all_gather(std::span(data), std::span(small)), ShapeError);
  EXPECT_THROW(world->reduce_scatter(std::span(data), std::span(small)), ShapeError);
  EXPECT_THROW(world->all_reduce(std::as_writable_bytes(std::span(data)).first(5), float32, ReduceOp::sum), ShapeError);
  EXPECT_THROW(world->all_reduce(std::span(integers), ReduceOp::mean), DTypeError);
  EXPECT_THROW(world->all_reduce(std::span(flags), ReduceOp::sum), DTypeError);
  EXPECT_NO_THROW(world->all_reduce(std::span(flags), ReduceOp::max));
  EXPECT_NO_THROW(world->all_reduce(std::span(integers), ReduceOp::sum));
  for (const int root : {-1, 1}) {
    EXPECT_THROW(
        try { world->broadcast(std::span(data), root); } catch (const ValueError& error) {
          EXPECT_EQ(error.kind(), ErrorKind::distributed);
          throw;
        },
        ValueError);
  }
}

/// Pretends that a second rank holds 10 everywhere.
class WithATen final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 2; }
  using Communicator::all_reduce;
  void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) override {
    ASSERT_EQ(dtype, float64);
    for (std::size_t i = 0; i < data.size(); i += sizeof(double)) {
      double value = 0;
      std::memcpy(&value, &data[i], sizeof value);
      value = op == ReduceOp::sum ? value + 10 : std::max(value, 10.0);
      std::memcpy(&data[i], &value, sizeof value);
    }
  }
  void reduce_scatter(std::span<const std::byte>, std::span<std::byte>, DType, ReduceOp) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
};

TEST(Agreement, OverACommunicatorAndAlone) {
  WithATen ranks;
  AgreementOver over(ranks);
  AgreementOfOne alone;
  std::array<double, 2> values{3, 30};
  over.max(values);
  EXPECT_EQ(values, (std::array<double, 2>{10, 30}));
  over.sum(values);
  EXPECT_EQ(values, (std::array<double, 2>{20, 40}));
  for (Agreement* agreement : {static_cast<Agreement*>(&alone)}) {
    agreement->max(values);
    agreement->sum(values);
  }
  EXPECT_EQ(values, (std::array<double, 2>{20, 40}));
}

}  // namespace
}  // namespace everyo
