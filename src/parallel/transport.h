#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "everyo/communicator.h"

// What moves bytes between the ranks of a group. Every collective is written on top of it, once.
namespace everyo::parallel {

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  barrier,
  send,
};
std::string_view name_of(Operation operation) noexcept;

/// What a rank calls. It travels with every message, and both ends must have the same.
struct Call {
  std::uint64_t sequence = 0;  ///< of the group's collectives; of the messages of a pair for send and receive
  std::uint64_t bytes = 0;     ///< of the whole call
  Operation operation = Operation::barrier;
  DType dtype = DType::uint8;
  ReduceOp reduce = ReduceOp::sum;
  std::int32_t root = 0;
  friend constexpr bool operator==(const Call&, const Call&) = default;
};
/// "all_reduce number 3 (sum of 64 elements of float32)".
std::string describe(const Call& call);

/// Messages between pairs of ranks, in order. All functions throw DistributedError once any rank has failed, and when a
/// rank is gone, is stopped, calls something else, or has sent nothing until the deadline.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;
  /// Most bytes of one message.
  [[nodiscard]] virtual std::size_t piece() const noexcept = 0;

  /// Sends up to piece() bytes to another rank. Two messages to each rank always find room; a third may wait for the
  /// first to be released. The bytes must stay as they are until flush().
  virtual void send(int to, const Call& call, std::span<const std::byte> bytes) = 0;
  /// The next message from a rank, readable until release().
  virtual std::span<const std::byte> receive(int from, const Call& call) = 0;
  virtual void release(int from) = 0;
  /// Returns once nobody reads bytes that this rank gave to send().
  virtual void flush(const Call& call) = 0;

  /// Throws what made the group fail, if anything did.
  virtual void check(const Call& call) = 0;
  /// The group ends for everybody, for this reason.
  virtual void fail(int rank, std::string_view reason) noexcept = 0;
};

}  // namespace everyo::parallel
