#include "everyo/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, 4> names{"sum", "mean", "min", "max"};

void check_reduction(std::string_view collective, std::size_t bytes, DType dtype, ReduceOp op) {
  if (bytes % size_of(dtype) != 0) {
    throw ShapeError(fmt::format("[{}] {} bytes are no whole number of {} elements of {} bytes", collective, bytes,
                                 name_of(dtype), size_of(dtype)));
  }
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  if ((sums && dtype == boolean) || (op == ReduceOp::mean && !is_floating(dtype))) {
    throw DTypeError(fmt::format("[{}] {} of {}; a sum needs numbers, a mean floating ones", collective, name_of(op),
                                 name_of(dtype)));
  }
}

void check_parts(std::string_view collective, std::size_t part, std::size_t whole) {
  if (part == whole) return;
  throw ShapeError(
      fmt::format("[{}] a part has {} bytes, the whole {}; with 1 rank they are equal", collective, part, whole));
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  if (from.data() != to.data()) std::ranges::copy(from, to.begin());
}

class WorldOfOne final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 1; }

  void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) override {
    check_reduction("all_reduce", data.size(), dtype, op);
  }
  void reduce_scatter(std::span<const std::byte> data, std::span<std::byte> part, DType dtype, ReduceOp op) override {
    check_reduction("reduce_scatter", data.size(), dtype, op);
    check_parts("reduce_scatter", part.size(), data.size());
    copy(data, part);
  }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> data) override {
    check_parts("all_gather", part.size(), data.size());
    copy(part, data);
  }
  void broadcast(std::span<std::byte>, int root) override {
    if (root != 0) {
      throw ValueError(fmt::format("[broadcast] root is {}; the only rank is 0", root), ErrorKind::distributed);
    }
  }
  void barrier() override {}
};

}  // namespace

std::string_view name_of(ReduceOp op) noexcept { return names[static_cast<std::size_t>(op)]; }

Communicator::~Communicator() = default;
Agreement::~Agreement() = default;

std::unique_ptr<Communicator> world_of_one() { return std::make_unique<WorldOfOne>(); }

}  // namespace everyo::inline v1
