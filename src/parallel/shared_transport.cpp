#include "parallel/shared_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "parallel/spawn.h"

namespace everyo::parallel {
namespace {

// Shorter bytes are cheaper to copy than to wait for.
constexpr std::size_t worth_a_reference = 32 << 10;

}  // namespace

SharedTransport::SharedTransport(std::shared_ptr<SharedWorld> world, int rank, Timeout timeout)
    : world_(std::move(world)),
      rank_(rank),
      ranks_(world_->world_size()),
      timeout_(timeout),
      crowded_(ranks_ > processors()),
      peers_(static_cast<std::size_t>(ranks_)) {
  if (rank < 0 || rank >= ranks_)
    throw ValueError(fmt::format("[ProcessGroup] rank {} of {}; rank must be from 0 to {}", rank, ranks_, ranks_ - 1),
                     ErrorKind::distributed);
  RankInfo& me = world_->info(rank);
  auto coming = static_cast<std::uint32_t>(Presence::coming);
  me.process.store(getpid());
  if (!me.presence.compare_exchange_strong(coming, static_cast<std::uint32_t>(Presence::here)))
    throw StateError(fmt::format("[ProcessGroup] rank {} was taken already; each rank joins once", rank),
                     ErrorKind::distributed);
}

SharedTransport::~SharedTransport() {
  for (const Peer& peer : peers_)
    if (peer.descriptor >= 0) close(peer.descriptor);
  world_->leave(rank_);
}

template <class Ready>
void SharedTransport::look(const Call& call, int awaited, Clock::time_point since, Ready&& ready) {
  if (!world_->failed() && !world_->threads())
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank_) look_at_process(peer);
  const bool left = world_->info(awaited).presence.load() == static_cast<std::uint32_t>(Presence::left);
  if (left && !ready()) {  // what it did last came before it left
    world_->fail(awaited,
                 fmt::format("rank {} has left the group, but rank {} calls {}", awaited, rank_, describe(call)));
  } else if (Clock::now() - since > timeout_) {
    world_->fail(awaited, fmt::format("rank {} did not come to {} within {:g} s, as rank {} saw", awaited,
                                      describe(call), timeout_.count(), rank_));
  }
  if (world_->failed()) raise(call);
}

void SharedTransport::send(int to, const Call& call, std::span<const std::byte> bytes) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  Ring& ring = world_->ring(rank_, to);
  const auto room = [&] { return peer.sent - ring.released.load(std::memory_order_acquire) < ring_depth; };
  if (!room()) {
    const auto since = Clock::now();
    wait_for(ring.released, ring.released_sleepers, patience(), room, [&] { look(call, to, since, room); });
  }
  Slot& slot = ring.slots[peer.sent % ring_depth];
  slot.call = call;
  slot.bytes = bytes.size();
  // A short message of a pair must not wait for its receiver, who may be sending one, too.
  const bool must_find_room = call.operation == Operation::send && call.bytes < 2 * piece_bytes;
  slot.reference = bytes.size() >= worth_a_reference && !must_find_room ? world_->reference_of(bytes) : 0;
  if (slot.reference == 0 && !bytes.empty())
    std::memcpy(world_->slot(rank_, to, peer.sent), bytes.data(), bytes.size());
  ++peer.sent;
  if (slot.reference != 0) peer.referenced = peer.sent;
  post(ring.sent, ring.sent_sleepers);
}

std::span<const std::byte> SharedTransport::receive(int from, const Call& call) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  Ring& ring = world_->ring(from, rank_);
  const auto there = [&] { return ring.sent.load(std::memory_order_acquire) != peer.received; };
  if (!there()) {
    const auto since = Clock::now();
    wait_for(ring.sent, ring.sent_sleepers, patience(), there, [&] { look(call, from, since, there); });
  }
  const Slot& slot = ring.slots[peer.received % ring_depth];
  if (slot.call != call) {
    world_->fail(from, fmt::format("rank {} calls {}, but rank {} {}; every rank must make the same calls in the same "
                                   "order with the same sizes and dtypes",
                                   rank_, describe(call), from, describe(slot.call)));
    raise(call);
  }
  const std::uint32_t message = peer.received++;
  if (slot.reference != 0) {
    ring.reading.store(1);
    if (world_->failed()) raise(call);  // its owner may have left already
    return world_->resolve(slot.reference, slot.bytes);
  }
  return {world_->slot(from, rank_, message), std::min<std::size_t>(slot.bytes, piece_bytes)};
}

void SharedTransport::release(int from) {
  Ring& ring = world_->ring(from, rank_);
  ring.reading.store(0, std::memory_order_release);
  post(ring.released, ring.released_sleepers);
}

// A receiver announces that it reads before it looks whether the group has failed, so of a failure and its reading one
// sees the other. It waits for nobody then, or for 20 ms. Memory of processes stays mapped.
void SharedTransport::raise(const Call& call) {
  for (int rank = 0; rank < ranks_ && world_->threads(); ++rank) world_->ring(rank, rank_).reading.store(0);
  for (int rank = 0; rank < ranks_ && world_->threads(); ++rank)
    while (world_->ring(rank_, rank).reading.load() != 0) std::this_thread::yield();
  world_->raise(name_of(call.operation));
}

void SharedTransport::flush(const Call& call) {
  for (int to = 0; to < ranks_; ++to) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    if (peer.referenced == 0) continue;
    Ring& ring = world_->ring(rank_, to);
    const auto read = [&] {
      return static_cast<std::int32_t>(ring.released.load(std::memory_order_acquire) - peer.referenced) >= 0;
    };
    if (!read()) {
      const auto since = Clock::now();
      wait_for(ring.released, ring.released_sleepers, patience(), read, [&] { look(call, to, since, read); });
    }
    peer.referenced = 0;
  }
}

void SharedTransport::look_at_process(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  RankInfo& info = world_->info(rank);
  if (info.presence.load() != static_cast<std::uint32_t>(Presence::here)) return;
  const int process = info.process.load();
  bool gone = false;
  if (peer.descriptor < 0) {
    peer.descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    gone = peer.descriptor < 0 && errno == ESRCH;
  }
  pollfd ended{.fd = peer.descriptor, .events = POLLIN, .revents = 0};
  const char state = process_state(process);
  gone = gone || (peer.descriptor >= 0 && poll(&ended, 1, 0) > 0) || state == 'Z';
  // It leaves before it ends, if it ends well.
  if (gone && info.presence.load() == static_cast<std::uint32_t>(Presence::here))
    return world_->fail(rank, fmt::format("rank {} (process {}) has died", rank, process));
  if (peer.stopped.add(state)) fail_as_stopped(*world_, rank, process);
}

}  // namespace everyo::parallel
