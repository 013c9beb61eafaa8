#include "everyo/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace everyo {
namespace {

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
  alone.max(values);
  alone.sum(values);
  EXPECT_EQ(values, (std::array<double, 2>{20, 40}));
}

}  // namespace
}  // namespace everyo
