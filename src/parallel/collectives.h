#pragma once
#include <cstddef>
#include <span>

#include "parallel/transport.h"

// The collectives over any transport, by direct exchange: rank i owns part i, receives every rank's part i, combines
// them in rank order and gives the result back. Calls are checked by the caller; docs/collectives.md counts what they
// send.
namespace everyo::parallel {

/// `weights`, one a rank and the same on all: of a mean; see kernels/combine.h.
void all_reduce(Transport& transport, const Call& call, std::span<std::byte> data,
                std::span<const double> weights = {});
void reduce_scatter(Transport& transport, const Call& call, std::span<const std::byte> data, std::span<std::byte> part);
void all_gather(Transport& transport, const Call& call, std::span<const std::byte> part, std::span<std::byte> data);
void broadcast(Transport& transport, const Call& call, std::span<std::byte> data);
void gather(Transport& transport, const Call& call, std::span<const std::byte> part, std::span<std::byte> data);
void scatter(Transport& transport, const Call& call, std::span<const std::byte> data, std::span<std::byte> part);
void barrier(Transport& transport, const Call& call);
/// All of `data` from one rank to another, in pieces.
void send(Transport& transport, const Call& call, std::span<const std::byte> data, int to);
void receive(Transport& transport, const Call& call, std::span<std::byte> data, int from);

}  // namespace everyo::parallel
