#include "parallel/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/combine.h"

namespace everyo::parallel {
namespace {

void copy(std::span<const std::byte> from, std::byte* to) noexcept {
  if (!from.empty() && from.data() != to) std::memcpy(to, from.data(), from.size());
}

template <class F>
void for_others(const Transport& t, F&& f) {
  for (int rank = 0; rank < t.world_size(); ++rank)
    if (rank != t.rank()) f(rank);
}

// The parts that all ranks have sent of the same elements, combined in rank order; `own` is this rank's.
class Combiner {
 public:
  Combiner(Transport& transport, const Call& call, std::span<const double> weights = {})
      : t_(transport), call_(call), weights_(weights), parts_(static_cast<std::size_t>(transport.world_size())) {}
  void receive(std::span<const std::byte> own, std::byte* to) {
    for (int rank = 0; rank < t_.world_size(); ++rank)
      parts_[static_cast<std::size_t>(rank)] = rank == t_.rank() ? own.data() : t_.receive(rank, call_).data();
    const auto count = static_cast<std::int64_t>(own.size() / size_of(call_.dtype));
    kernels::combine(call_.reduce, call_.dtype, parts_, to, count, weights_);
    for_others(t_, [&](int rank) { t_.release(rank); });
  }

 private:
  Transport& t_;
  const Call& call_;
  std::span<const double> weights_;
  std::vector<const void*> parts_;
};

// Data cut in chunks of world_size pieces. Pieces are whole elements, and as equal as can be within a chunk.
struct Chunks {
  Chunks(const Transport& t, std::size_t bytes, std::size_t element)
      : ranks(static_cast<std::size_t>(t.world_size())),
        element_bytes(element),
        elements(bytes / element),
        chunk(t.piece() / element * ranks),
        count((elements + chunk - 1) / chunk) {}
  // Bytes of rank's piece of chunk k.
  [[nodiscard]] std::span<std::byte> piece(std::span<std::byte> data, std::size_t k, int rank) const {
    const std::size_t first = k * chunk, size = std::min(chunk, elements - first), r = static_cast<std::size_t>(rank);
    const std::size_t begin = first + size * r / ranks, end = first + size * (r + 1) / ranks;
    return data.subspan(begin * element_bytes, (end - begin) * element_bytes);
  }
  std::size_t ranks, element_bytes, elements, chunk, count;
};

// Everyone sends all to everyone and combines it for itself: one message's time.
constexpr std::size_t small = 8 << 10;

}  // namespace

void all_reduce(Transport& t, const Call& call, std::span<std::byte> data, std::span<const double> weights) {
  Combiner combiner(t, call, weights);
  if (data.size() <= std::min(small, t.piece())) {
    for_others(t, [&](int rank) { t.send(rank, call, data); });
    combiner.receive(data, data.data());
    return;
  }
  const Chunks chunks(t, data.size(), size_of(call.dtype));
  const auto offer = [&](std::size_t k) {
    for_others(t, [&](int rank) { t.send(rank, call, chunks.piece(data, k, rank)); });
  };
  const auto collect = [&](std::size_t k) {
    for_others(t, [&](int rank) {
      copy(t.receive(rank, call), chunks.piece(data, k, rank).data());
      t.release(rank);
    });
  };
  // The next chunk is offered before this one's results are waited for, so that ranks need not keep step.
  offer(0);
  for (std::size_t k = 0; k < chunks.count; ++k) {
    if (k + 1 < chunks.count) offer(k + 1);
    const std::span<std::byte> own = chunks.piece(data, k, t.rank());
    combiner.receive(own, own.data());
    for_others(t, [&](int rank) { t.send(rank, call, own); });
    if (k > 0) collect(k - 1);
  }
  collect(chunks.count - 1);
  t.flush(call);
}

void reduce_scatter(Transport& t, const Call& call, std::span<const std::byte> data, std::span<std::byte> part) {
  Combiner combiner(t, call);
  const std::size_t piece = t.piece() / size_of(call.dtype) * size_of(call.dtype);
  const auto of = [&](int rank, std::size_t at) {
    return data.subspan(static_cast<std::size_t>(rank) * part.size() + at, std::min(piece, part.size() - at));
  };
  for (std::size_t at = 0; at < part.size() || at == 0; at += piece) {
    for_others(t, [&](int rank) { t.send(rank, call, of(rank, at)); });
    combiner.receive(of(t.rank(), at), part.data() + at);
  }
  t.flush(call);
}

void all_gather(Transport& t, const Call& call, std::span<const std::byte> part, std::span<std::byte> data) {
  copy(part, data.data() + static_cast<std::size_t>(t.rank()) * part.size());
  for (std::size_t at = 0; at < part.size() || at == 0; at += t.piece()) {
    const auto piece = part.subspan(at, std::min(t.piece(), part.size() - at));
    for_others(t, [&](int rank) { t.send(rank, call, piece); });
    for_others(t, [&](int rank) {
      copy(t.receive(rank, call), data.data() + static_cast<std::size_t>(rank) * part.size() + at);
      t.release(rank);
    });
  }
  t.flush(call);
}

void broadcast(Transport& t, const Call& call, std::span<std::byte> data) {
  for (std::size_t at = 0; at < data.size() || at == 0; at += t.piece()) {
    const auto piece = data.subspan(at, std::min(t.piece(), data.size() - at));
    if (t.rank() == call.root) {
      for_others(t, [&](int rank) { t.send(rank, call, piece); });
    } else {
      copy(t.receive(call.root, call), piece.data());
      t.release(call.root);
    }
  }
  t.flush(call);
}

void gather(Transport& t, const Call& call, std::span<const std::byte> part, std::span<std::byte> data) {
  if (t.rank() != call.root) {
    send(t, call, part, call.root);
    return;
  }
  for (int rank = 0; rank < t.world_size(); ++rank) {
    const auto place = data.subspan(static_cast<std::size_t>(rank) * part.size(), part.size());
    if (rank == t.rank())
      copy(part, place.data());
    else
      receive(t, call, place, rank);
  }
}

void scatter(Transport& t, const Call& call, std::span<const std::byte> data, std::span<std::byte> part) {
  if (t.rank() != call.root) return receive(t, call, part, call.root);
  const auto of = [&](int rank) { return data.subspan(static_cast<std::size_t>(rank) * part.size(), part.size()); };
  // A piece to each in turn, so that none waits for another's whole part.
  for (std::size_t at = 0; at < part.size() || at == 0; at += t.piece())
    for_others(t, [&](int rank) { t.send(rank, call, of(rank).subspan(at, std::min(t.piece(), part.size() - at))); });
  copy(of(t.rank()), part.data());
  t.flush(call);
}

void barrier(Transport& t, const Call& call) {
  for_others(t, [&](int rank) { t.send(rank, call, {}); });
  for_others(t, [&](int rank) {
    t.receive(rank, call);
    t.release(rank);
  });
}

void send(Transport& t, const Call& call, std::span<const std::byte> data, int to) {
  for (std::size_t at = 0; at < data.size() || at == 0; at += t.piece())
    t.send(to, call, data.subspan(at, std::min(t.piece(), data.size() - at)));
  t.flush(call);
}

void receive(Transport& t, const Call& call, std::span<std::byte> data, int from) {
  for (std::size_t at = 0; at < data.size() || at == 0; at += t.piece()) {
    const auto message = t.receive(from, call);
    copy(message.first(std::min(message.size(), data.size() - at)), data.data() + at);
    t.release(from);
  }
}

}  // namespace everyo::parallel
