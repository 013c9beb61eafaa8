#include "everyo/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/collective_checks.h"
#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, 4> names{"sum", "mean", "min", "max"};

void copy(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  if (from.data() != to.data()) std::ranges::copy(from, to.begin());
}

class WorldOfOne final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 1; }

  void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) override {
    base::check_reduction("all_reduce", data.size(), dtype, op);
  }
  void reduce_scatter(std::span<const std::byte> data, std::span<std::byte> part, DType dtype, ReduceOp op) override {
    base::check_reduction("reduce_scatter", data.size(), dtype, op);
    base::check_parts("reduce_scatter", part.size(), data.size(), 1);
    copy(data, part);
  }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> data) override {
    base::check_parts("all_gather", part.size(), data.size(), 1);
    copy(part, data);
  }
  void broadcast(std::span<std::byte>, int root) override { base::check_root("broadcast", root, 1); }
  void barrier() override {}
};

}  // namespace

std::string_view name_of(ReduceOp op) noexcept { return names[static_cast<std::size_t>(op)]; }

Communicator::~Communicator() = default;
Agreement::~Agreement() = default;

std::unique_ptr<Communicator> world_of_one() { return std::make_unique<WorldOfOne>(); }

}  // namespace everyo::inline v1

namespace everyo::base {

void check_reduction(std::string_view collective, std::size_t bytes, DType dtype, ReduceOp op) {
  if (bytes % size_of(dtype) != 0)
    throw ShapeError(fmt::format("[{}] {} bytes are no whole number of {} elements of {} bytes", collective, bytes,
                                 name_of(dtype), size_of(dtype)));
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  if ((sums && dtype == boolean) || (op == ReduceOp::mean && !is_floating(dtype)))
    throw DTypeError(fmt::format("[{}] {} of {}; a sum needs numbers, a mean floating ones", collective, name_of(op),
                                 name_of(dtype)));
}

void check_parts(std::string_view collective, std::size_t part, std::size_t whole, int world_size) {
  if (part * static_cast<std::size_t>(world_size) == whole) return;
  throw ShapeError(fmt::format("[{}] a part has {} bytes, the whole {}; with {} rank{} it must be {}", collective, part,
                               whole, world_size, world_size == 1 ? "" : "s",
                               part * static_cast<std::size_t>(world_size)));
}

void check_root(std::string_view collective, int root, int world_size) {
  if (root >= 0 && root < world_size) return;
  throw ValueError(
      fmt::format("[{}] root is {}; {}", collective, root,
                  world_size == 1 ? "the only rank is 0" : fmt::format("ranks are 0 to {}", world_size - 1)),
      ErrorKind::distributed);
}

}  // namespace everyo::base
