#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "everyo/communicator.h"
#include "everyo/error.h"
#include "everyo/storage.h"

// Ranks that train together: groups of them, what they exchange, and how they are started.
namespace everyo::inline v1 {

/// A rank failed, is gone or stopped, or calls something else than the others. The group cannot be used any more.
class EVERYO_API DistributedError : public Error {
 public:
  DistributedError(const std::string& message, int rank, std::string details = {})
      : Error(message, ErrorKind::distributed), rank_(rank), details_(std::move(details)) {}
  ~DistributedError() override;
  /// The rank that the trouble came from; -1: not known.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// What the rank's WorkerError had of them.
  [[nodiscard]] const std::string& details() const noexcept { return details_; }

 private:
  int rank_;
  std::string details_;
};

/// What a worker throws to say in its own words what went wrong: they stand where another exception's type and message
/// would.
class EVERYO_API WorkerError : public Error {
 public:
  explicit WorkerError(const std::string& what, std::string details = {})
      : Error(what, ErrorKind::distributed), details_(std::move(details)) {}
  ~WorkerError() override;
  /// Of any length, such as a traceback.
  [[nodiscard]] const std::string& details() const noexcept { return details_; }

 private:
  std::string details_;
};

/// An exchange under way. The spans it was given must stay as they are until wait() has returned.
class EVERYO_API Work {
 public:
  Work() = default;
  /// Returns once it is done; throws what it threw. Again: nothing.
  void wait();
  [[nodiscard]] bool done() const noexcept;

 private:
  friend class ProcessGroup;
  struct State;
  explicit Work(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// How long a rank waits for another before it gives up.
using Timeout = std::chrono::duration<double>;
inline constexpr Timeout default_timeout{600}, no_timeout{std::numeric_limits<double>::infinity()};

/// The ranks of a run, or some of them. Every rank calls the same collectives in the same order with the same sizes; a
/// call that differs is an error on all of them, as is a rank that dies, stops, leaves or is late: each throws
/// DistributedError, which names that rank, and every later call throws it again. Floating sums are made in float64 in
/// rank order and rounded once: the same bits on every rank, every time, whatever the transport. Not for two threads at
/// once. docs/collectives.md counts messages and bytes.
class EVERYO_API ProcessGroup final : public Communicator {
 public:
  ~ProcessGroup() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int world_size() const noexcept override;
  /// "threads", "shm", or "one" for a world of one.
  [[nodiscard]] std::string_view transport() const noexcept;

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::broadcast;
  using Communicator::reduce_scatter;
  void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) override;
  void reduce_scatter(std::span<const std::byte> data, std::span<std::byte> part, DType dtype, ReduceOp op) override;
  void all_gather(std::span<const std::byte> part, std::span<std::byte> data) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void barrier() override;
  /// The same for elements of a dtype, which must be one on all ranks; so in all that follow.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> data, DType dtype);
  void broadcast(std::span<std::byte> data, int root, DType dtype);
  /// The parts of all ranks in rank order, in `data` of rank root; elsewhere `data` is not looked at.
  void gather(std::span<const std::byte> part, std::span<std::byte> data, int root, DType dtype = uint8);
  /// Part i of rank root's `data`, cut in world_size() equal parts, on rank i.
  void scatter(std::span<const std::byte> data, std::span<std::byte> part, int root, DType dtype = uint8);

  /// To and from one other rank; for each pair, their order among the collectives must be the same on both sides, and
  /// so must sizes. A longer message (from 256 kB on) waits for its receiver. Throws ValueError for this rank itself or
  /// no rank.
  void send(std::span<const std::byte> data, int to, DType dtype = uint8);
  void receive(std::span<std::byte> data, int from, DType dtype = uint8);

  /// The same collectives, run one after the other by a thread of the group while the caller goes on. Later collectives
  /// of either kind come after them. Throws Error when the system refuses that thread.
  [[nodiscard]] Work all_reduce_async(std::span<std::byte> data, DType dtype, ReduceOp op);
  [[nodiscard]] Work reduce_scatter_async(std::span<const std::byte> data, std::span<std::byte> part, DType dtype,
                                          ReduceOp op);
  [[nodiscard]] Work all_gather_async(std::span<const std::byte> part, std::span<std::byte> data, DType dtype = uint8);
  [[nodiscard]] Work broadcast_async(std::span<std::byte> data, int root, DType dtype = uint8);
  [[nodiscard]] Work gather_async(std::span<const std::byte> part, std::span<std::byte> data, int root,
                                  DType dtype = uint8);
  [[nodiscard]] Work scatter_async(std::span<const std::byte> data, std::span<std::byte> part, int root,
                                   DType dtype = uint8);
  [[nodiscard]] Work barrier_async();

  /// The mean of all ranks' data, each times its rank's weight, over the sum of the weights; data of weight 0 is not
  /// looked at, and without any weight nothing changes. `weights`: one a rank, 0 or more, the same on all; read when
  /// the exchange runs, so an earlier one may fill them.
  using Weights = std::vector<double>;
  [[nodiscard]] Work weighted_mean_async(std::span<std::byte> data, DType dtype,
                                         std::shared_ptr<const Weights> weights);

  /// The ranks that give the same `color`, ordered by `key`, then rank; null for color < 0. Every rank calls it.
  [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key = 0);
  /// Memory of `bytes` bytes on every rank that collectives exchange without copying it first. Every rank calls it with
  /// the same size; ShapeError when they differ.
  [[nodiscard]] Ref<Storage> shared_memory(std::size_t bytes);

  /// Ends the group on all ranks: calls that wait throw DistributedError with this reason.
  void end(std::string_view reason) noexcept;

  struct Parts;
  explicit ProcessGroup(std::unique_ptr<Parts> parts) noexcept;

 private:
  Work submit(std::function<void()> call);
  void run(const std::function<void()>& call);
  std::unique_ptr<Parts> parts_;
};

/// The group of a run of one process: each collective checks its arguments and gives back what one rank gave.
EVERYO_API std::unique_ptr<ProcessGroup> single_process_group();

struct SpawnOptions {
  /// Of the whole call and of each wait of a rank for another. A rank that dies or is stopped is noticed without it.
  Timeout timeout = default_timeout;
  int threads = 0;  ///< of a rank's kernels; 0: the processors there are, shared out
  /// Called about every 20 ms by the thread that waits for the ranks; what it throws ends them, and the call.
  std::function<void()> look{};
  /// In place of fork(2), for a runtime that must know of it.
  std::function<int()> fork{};
};

/// Runs `worker` on world_size ranks at once, as threads of this process. What they return, in rank order. When one
/// throws, the others' exchanges throw too, and the call throws DistributedError with the first one's rank, type and
/// message; so it does when the system refuses a rank's thread. Throws ValueError unless world_size is 1 to 256.
EVERYO_API std::vector<std::string> run_threads(int world_size, const std::function<std::string(ProcessGroup&)>& worker,
                                                const SpawnOptions& options = {});
/// The same as processes, forked from this one: they see its memory as it is now, and change only their own. A rank
/// that is killed, exits or is stopped ends the call within a second; no process is left when it returns.
/// DistributedError also for a run that takes longer than the timeout.
EVERYO_API std::vector<std::string> run_processes(int world_size,
                                                  const std::function<std::string(ProcessGroup&)>& worker,
                                                  const SpawnOptions& options = {});
/// The same as programs: each rank runs `command`, finds its group with init_process_group(), and hands its result over
/// with report_result(). Throws ValueError also without a program.
EVERYO_API std::vector<std::string> run_programs(int world_size, const std::vector<std::string>& command,
                                                 const SpawnOptions& options = {});
/// In a program that run_programs has started, once: what the rank returns, or why it cannot. It should end then.
/// Throws StateError where nobody waits for it.
EVERYO_API void report_result(std::string_view result);
EVERYO_API void report_problem(const WorkerError& problem);

/// Runs a program on world_size ranks and waits for all of them: its exit status (128 and the signal of a process that
/// was killed) of the rank to blame, which is logged, 0 when all ended well. The program finds its group with
/// init_process_group(). The timeout is that of a rank's waits alone. Throws ValueError as above, and without a
/// program; FileError for one that cannot be run.
EVERYO_API int launch(int world_size, const std::vector<std::string>& command, const SpawnOptions& options = {});

/// The group of a program that `everyo launch` started; otherwise a group of one. Once a process; the calling thread is
/// then its rank's (Context::rank). Throws ValueError
/// for an EVERYO_GROUP that nothing of ours has set.
EVERYO_API std::unique_ptr<ProcessGroup> init_process_group();

}  // namespace everyo::inline v1
