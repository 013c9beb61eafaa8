#include "parallel/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "parallel/collective_checks.h"
#include "parallel/collectives.h"

namespace everyo {
namespace parallel {

std::string_view name_of(Operation operation) noexcept {
  constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                        "gather",     "scatter",        "barrier",    "send"};
  return names[static_cast<std::size_t>(operation)];
}

std::string describe(const Call& call) {
  const std::string_view name = name_of(call.operation);
  const std::string size =
      call.dtype == DType::uint8
          ? fmt::format("{} bytes", call.bytes)
          : fmt::format("{} elements of {}", call.bytes / size_of(call.dtype), everyo::name_of(call.dtype));
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce_scatter:
      return fmt::format("{} number {} ({} of {} elements of {})", name, call.sequence, everyo::name_of(call.reduce),
                         call.bytes / size_of(call.dtype), everyo::name_of(call.dtype));
    case Operation::broadcast:
    case Operation::gather:
    case Operation::scatter: return fmt::format("{} number {} ({}, root {})", name, call.sequence, size, call.root);
    case Operation::barrier: return fmt::format("{} number {}", name, call.sequence);
    default: return fmt::format("{} number {} ({})", name, call.sequence, size);
  }
}

}  // namespace parallel

inline namespace v1 {

using parallel::Call;
using parallel::Operation;

DistributedError::~DistributedError() = default;
WorkerError::~WorkerError() = default;

CallQueue::~CallQueue() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}
void CallQueue::push(std::function<void()> call) {
  // First: what waits for a thread that never comes would be waited for.
  if (!thread_.joinable()) try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      throw Error(fmt::format("[ProcessGroup] the system refuses the thread of asynchronous exchanges ({}); run fewer "
                              "ranks, or raise the limit of threads (ulimit -u)",
                              error.code().message()),
                  ErrorKind::backend);
    }
  {
    const std::scoped_lock lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}
bool CallQueue::idle() {
  const std::scoped_lock lock(mutex_);
  return calls_.empty() && !running_;
}
void CallQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return calls_.empty() && !running_; });
}
void CallQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    running_ = true;
    lock.unlock();
    call();
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};
void Work::wait() {
  if (!state_) return;
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  std::unique_lock lock(state->mutex);
  state->changed.wait(lock, [&] { return state->done; });
  if (state->error) std::rethrow_exception(state->error);
}
bool Work::done() const noexcept {
  if (!state_) return true;
  const std::scoped_lock lock(state_->mutex);
  return state_->done;
}

ProcessGroup::ProcessGroup(std::unique_ptr<Parts> parts) noexcept : parts_(std::move(parts)) {}
ProcessGroup::~ProcessGroup() {
  if (parts_->under_way != 0) end(fmt::format("rank {} has left the group with exchanges under way", rank()));
}

int ProcessGroup::rank() const noexcept { return parts_->transport ? parts_->transport->rank() : 0; }
int ProcessGroup::world_size() const noexcept { return parts_->transport ? parts_->transport->world_size() : 1; }
std::string_view ProcessGroup::transport() const noexcept {
  return parts_->transport ? parts_->transport->name() : "one";
}
void ProcessGroup::end(std::string_view reason) noexcept {
  if (parts_->transport) parts_->transport->fail(rank(), reason);
}

Work ProcessGroup::submit(std::function<void()> call) {
  auto state = std::make_shared<Work::State>();
  if (!parts_->transport) {
    call();
    state->done = true;
    return Work(std::move(state));
  }
  ++parts_->under_way;
  parts_->queue.push([state, call = std::move(call), parts = parts_.get()] {
    std::exception_ptr error;
    parts->transport->work_beside(true);
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
    parts->transport->work_beside(false);
    --parts->under_way;
    {
      const std::scoped_lock lock(state->mutex);
      state->error = error;
      state->done = true;
    }
    state->changed.notify_all();
  });
  return Work(std::move(state));
}

// Here, after what is under way.
void ProcessGroup::run(const std::function<void()>& call) {
  if (parts_->transport && !parts_->queue.idle()) parts_->queue.drain();
  call();
}

namespace {

// What copies for a world of one.
void copy(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  if (from.data() != to.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

struct Checked {
  Operation operation;
  DType dtype;
  ReduceOp reduce;
  int root;
  std::size_t bytes;
};

Call next_call(ProcessGroup::Parts& parts, const Checked& c) {
  const Call call{++parts.sequence, c.bytes, c.operation, c.dtype, c.reduce, c.root};
  parts.transport->check(call);
  return call;
}

auto reduced(ProcessGroup::Parts& parts, std::span<std::byte> data, DType dtype, ReduceOp op) {
  parallel::check_reduction("all_reduce", data.size(), dtype, op);
  return [&parts, data, dtype, op] {
    if (parts.transport)
      parallel::all_reduce(*parts.transport, next_call(parts, {Operation::all_reduce, dtype, op, 0, data.size()}),
                           data);
  };
}
auto scattered(ProcessGroup& group, ProcessGroup::Parts& parts, std::span<const std::byte> data,
               std::span<std::byte> part, DType dtype, ReduceOp op) {
  parallel::check_reduction("reduce_scatter", part.size(), dtype, op);
  parallel::check_parts("reduce_scatter", part.size(), data.size(), group.world_size());
  return [&parts, data, part, dtype, op] {
    if (!parts.transport) return copy(data, part);
    parallel::reduce_scatter(*parts.transport, next_call(parts, {Operation::reduce_scatter, dtype, op, 0, data.size()}),
                             data, part);
  };
}
auto gathered(ProcessGroup& group, ProcessGroup::Parts& parts, std::span<const std::byte> part,
              std::span<std::byte> data, DType dtype) {
  parallel::check_parts("all_gather", part.size(), data.size(), group.world_size());
  return [&parts, part, data, dtype] {
    if (!parts.transport) return copy(part, data);
    parallel::all_gather(*parts.transport,
                         next_call(parts, {Operation::all_gather, dtype, ReduceOp::sum, 0, data.size()}), part, data);
  };
}
auto spread(ProcessGroup& group, ProcessGroup::Parts& parts, std::span<std::byte> data, int root, DType dtype) {
  parallel::check_root("broadcast", root, group.world_size());
  return [&parts, data, root, dtype] {
    if (parts.transport)
      parallel::broadcast(*parts.transport,
                          next_call(parts, {Operation::broadcast, dtype, ReduceOp::sum, root, data.size()}), data);
  };
}
auto collected(ProcessGroup& group, ProcessGroup::Parts& parts, std::span<const std::byte> part,
               std::span<std::byte> data, int root, DType dtype) {
  parallel::check_root("gather", root, group.world_size());
  if (group.rank() == root) parallel::check_parts("gather", part.size(), data.size(), group.world_size());
  return [&parts, part, data, root, dtype] {
    if (!parts.transport) return copy(part, data);
    parallel::gather(*parts.transport, next_call(parts, {Operation::gather, dtype, ReduceOp::sum, root, part.size()}),
                     part, data);
  };
}
auto dealt(ProcessGroup& group, ProcessGroup::Parts& parts, std::span<const std::byte> data, std::span<std::byte> part,
           int root, DType dtype) {
  parallel::check_root("scatter", root, group.world_size());
  if (group.rank() == root) parallel::check_parts("scatter", part.size(), data.size(), group.world_size());
  return [&parts, data, part, root, dtype] {
    if (!parts.transport) return copy(data, part);
    parallel::scatter(*parts.transport, next_call(parts, {Operation::scatter, dtype, ReduceOp::sum, root, part.size()}),
                      data, part);
  };
}
auto met(ProcessGroup::Parts& parts) {
  return [&parts] {
    if (parts.transport)
      parallel::barrier(*parts.transport, next_call(parts, {Operation::barrier, DType::uint8, ReduceOp::sum, 0, 0}));
  };
}

}  // namespace

Work ProcessGroup::weighted_mean_async(std::span<std::byte> data, DType dtype, std::shared_ptr<const Weights> weights) {
  parallel::check_reduction("all_reduce", data.size(), dtype, ReduceOp::mean);
  if (!weights || weights->size() != static_cast<std::size_t>(world_size()))
    throw ValueError(fmt::format("[weighted_mean] {} weights for {} ranks; give one a rank",
                                 weights ? weights->size() : 0, world_size()),
                     ErrorKind::distributed);
  return submit([this, data, dtype, weights = std::move(weights)] {
    for (const double weight : *weights) check_weight("weighted_mean", weight);
    const bool any = std::ranges::any_of(*weights, [](double w) { return w != 0; });
    if (parts_->transport && any)
      parallel::all_reduce(*parts_->transport,
                           next_call(*parts_, {Operation::all_reduce, dtype, ReduceOp::mean, 0, data.size()}), data,
                           *weights);
  });
}
void ProcessGroup::all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) {
  run(reduced(*parts_, data, dtype, op));
}
void ProcessGroup::reduce_scatter(std::span<const std::byte> data, std::span<std::byte> part, DType dtype,
                                  ReduceOp op) {
  run(scattered(*this, *parts_, data, part, dtype, op));
}
void ProcessGroup::all_gather(std::span<const std::byte> part, std::span<std::byte> data) {
  all_gather(part, data, uint8);
}
void ProcessGroup::all_gather(std::span<const std::byte> part, std::span<std::byte> data, DType dtype) {
  run(gathered(*this, *parts_, part, data, dtype));
}
void ProcessGroup::broadcast(std::span<std::byte> data, int root) { broadcast(data, root, uint8); }
void ProcessGroup::broadcast(std::span<std::byte> data, int root, DType dtype) {
  run(spread(*this, *parts_, data, root, dtype));
}
Work ProcessGroup::all_reduce_async(std::span<std::byte> data, DType dtype, ReduceOp op) {
  return submit(reduced(*parts_, data, dtype, op));
}
Work ProcessGroup::reduce_scatter_async(std::span<const std::byte> data, std::span<std::byte> part, DType dtype,
                                        ReduceOp op) {
  return submit(scattered(*this, *parts_, data, part, dtype, op));
}
Work ProcessGroup::all_gather_async(std::span<const std::byte> part, std::span<std::byte> data, DType dtype) {
  return submit(gathered(*this, *parts_, part, data, dtype));
}
Work ProcessGroup::broadcast_async(std::span<std::byte> data, int root, DType dtype) {
  return submit(spread(*this, *parts_, data, root, dtype));
}

void ProcessGroup::gather(std::span<const std::byte> part, std::span<std::byte> data, int root, DType dtype) {
  run(collected(*this, *parts_, part, data, root, dtype));
}
void ProcessGroup::scatter(std::span<const std::byte> data, std::span<std::byte> part, int root, DType dtype) {
  run(dealt(*this, *parts_, data, part, root, dtype));
}
void ProcessGroup::barrier() { run(met(*parts_)); }
Work ProcessGroup::gather_async(std::span<const std::byte> part, std::span<std::byte> data, int root, DType dtype) {
  return submit(collected(*this, *parts_, part, data, root, dtype));
}
Work ProcessGroup::scatter_async(std::span<const std::byte> data, std::span<std::byte> part, int root, DType dtype) {
  return submit(dealt(*this, *parts_, data, part, root, dtype));
}
Work ProcessGroup::barrier_async() { return submit(met(*parts_)); }

namespace {
void check_peer(std::string_view operation, int peer, const ProcessGroup& group) {
  if (peer >= 0 && peer < group.world_size() && peer != group.rank()) return;
  throw ValueError(fmt::format("[{}] rank {} of {} cannot exchange with rank {}; rank must be another of 0 to {}",
                               operation, group.rank(), group.world_size(), peer, group.world_size() - 1),
                   ErrorKind::distributed);
}
}  // namespace

void ProcessGroup::send(std::span<const std::byte> data, int to, DType dtype) {
  check_peer("send", to, *this);
  run([&] {
    const Call call{++parts_->sent[static_cast<std::size_t>(to)], data.size(), Operation::send, dtype};
    parts_->transport->check(call);
    parallel::send(*parts_->transport, call, data, to);
  });
}
void ProcessGroup::receive(std::span<std::byte> data, int from, DType dtype) {
  check_peer("receive", from, *this);
  run([&] {
    const Call call{++parts_->received[static_cast<std::size_t>(from)], data.size(), Operation::send, dtype};
    parts_->transport->check(call);
    parallel::receive(*parts_->transport, call, data, from);
  });
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key) {
  if (!parts_->transport) return color < 0 ? nullptr : single_process_group();
  struct Choice {
    std::int32_t color, key, rank;
  };
  const std::shared_ptr<parallel::SharedWorld>& world = parts_->transport->world();
  std::vector<Choice> choices(static_cast<std::size_t>(world_size()));
  const Choice own[] = {{color, key, rank()}};
  all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(choices)));
  std::erase_if(choices, [&](const Choice& c) { return c.color != color; });
  std::ranges::sort(
      choices, [](const Choice& a, const Choice& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
  // The first rank of each part makes its memory.
  const bool first = color >= 0 && choices.front().rank == rank();
  std::uint64_t made[] = {first ? world->make_part(static_cast<int>(choices.size())) : 0};
  // Threads take the first one's view of it, processes each their own.
  std::shared_ptr<parallel::SharedWorld> part = first ? world->open_part(made[0]) : nullptr;
  if (first && world->threads()) made[0] = reinterpret_cast<std::uintptr_t>(&part);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world_size()));
  all_gather(std::as_bytes(std::span(made)), std::as_writable_bytes(std::span(all)));
  if (color >= 0 && !first) {
    const std::uint64_t of_first = all[static_cast<std::size_t>(choices.front().rank)];
    part = world->threads() ? *reinterpret_cast<const std::shared_ptr<parallel::SharedWorld>*>(of_first)
                            : world->open_part(of_first);
  }
  if (world->threads()) barrier();  // by then all have it
  if (color < 0) return nullptr;
  const auto place = std::ranges::find(choices, rank(), &Choice::rank) - choices.begin();
  return join(std::move(part), static_cast<int>(place), parts_->transport->timeout());
}

Ref<Storage> ProcessGroup::shared_memory(std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 46;  // more than machines have, and far from overflow
  if (bytes > most)
    throw ShapeError(fmt::format("[shared_memory] {} bytes are more than the {} there can be", bytes, most));
  const std::size_t ranks = static_cast<std::size_t>(world_size()), own = (bytes + 4095) / 4096 * 4096;
  const bool processes = parts_->transport && !parts_->transport->world()->threads();
  struct Wish {
    std::uint64_t bytes, offset;
  };
  const Wish wish[] = {{bytes, processes && rank() == 0 ? parts_->transport->world()->allocate(own * ranks) : 0}};
  std::vector<Wish> all(ranks);
  all_gather(std::as_bytes(std::span(wish)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < ranks; ++r)
    if (all[r].bytes != all[0].bytes)
      throw ShapeError(fmt::format("[shared_memory] rank 0 wants {} bytes, rank {} {}; every rank must want the same",
                                   all[0].bytes, r, all[r].bytes));
  if (!processes) return Storage::take(bytes, MemoryCategory::communication);
  const std::shared_ptr<parallel::SharedWorld> world = parts_->transport->world();
  std::byte* const region = world->map_region(all[0].offset, own * ranks);
  barrier();  // nobody sends a reference to it before everyone has it
  std::byte* const data = region + own * static_cast<std::size_t>(rank());
  return Storage::borrow(data, bytes, [world, data, own] { parallel::SharedWorld::give_back(data, own); });
}

std::unique_ptr<ProcessGroup> single_process_group() {
  return std::make_unique<ProcessGroup>(std::make_unique<ProcessGroup::Parts>());
}

std::unique_ptr<ProcessGroup> join(std::shared_ptr<parallel::SharedWorld> world, int rank, Timeout timeout) {
  auto parts = std::make_unique<ProcessGroup::Parts>();
  const auto ranks = static_cast<std::size_t>(world->world_size());
  parts->transport = std::make_unique<parallel::SharedTransport>(std::move(world), rank, timeout);
  parts->sent.resize(ranks);
  parts->received.resize(ranks);
  return std::make_unique<ProcessGroup>(std::move(parts));
}

}  // namespace v1
}  // namespace everyo
