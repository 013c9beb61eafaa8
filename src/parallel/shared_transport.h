#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "everyo/parallel.h"
#include "parallel/process_state.h"
#include "parallel/shared_world.h"
#include "parallel/transport.h"

namespace everyo::parallel {

/// Messages through memory that all ranks see: threads of a process, or processes of a machine.
class SharedTransport final : public Transport {
 public:
  /// Rank `rank` takes its place. Throws StateError when somebody has it already.
  SharedTransport(std::shared_ptr<SharedWorld> world, int rank, Timeout timeout);
  /// The others learn that it left.
  ~SharedTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return world_->threads() ? "threads" : "shm"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return ranks_; }
  [[nodiscard]] std::size_t piece() const noexcept override { return piece_bytes; }
  void send(int to, const Call& call, std::span<const std::byte> bytes) override;
  std::span<const std::byte> receive(int from, const Call& call) override;
  void release(int from) override;
  void flush(const Call& call) override;
  void check(const Call& call) override {
    if (world_->failed()) raise(call);
  }
  void fail(int rank, std::string_view reason) noexcept override { world_->fail(rank, reason); }

  [[nodiscard]] const std::shared_ptr<SharedWorld>& world() noexcept { return world_; }
  /// While true, waits sleep at once instead of keeping a processor from the thread that computes.
  void work_beside(bool on) noexcept { beside_ = on; }
  [[nodiscard]] Timeout timeout() const noexcept { return timeout_; }

 private:
  struct Peer {
    std::uint32_t sent = 0, received = 0;
    std::uint32_t referenced = 0;  // of `sent`: the last message that the receiver reads where it lies here
    int descriptor = -1;           // of its process
    StoppedLooks stopped{};
  };
  /// While it waits for `awaited`: throws when there is no sense in that any longer.
  template <class Ready>
  void look(const Call& call, int awaited, Clock::time_point since, Ready&& ready);
  void look_at_process(int peer);
  /// Throws what made the group fail, once nobody reads this rank's bytes any more: their owner may free them then.
  [[noreturn]] void raise(const Call& call);
  [[nodiscard]] Patience patience() const noexcept {
    return beside_ ? Patience::sleep : crowded_ ? Patience::yield : Patience::spin;
  }

  std::shared_ptr<SharedWorld> world_;
  int rank_, ranks_;
  Timeout timeout_;
  bool crowded_;
  bool beside_ = false;  // the caller computes meanwhile, and needs the processor
  std::vector<Peer> peers_;
};

}  // namespace everyo::parallel
