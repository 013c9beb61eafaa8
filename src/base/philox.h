#pragma once
#include <array>
#include <cstdint>

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128 random bits
// as a function of a 128-bit counter and a 64-bit key. Scalar and inline, for kernels to call per block of four draws.
namespace everyo::philox {

using Block = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

constexpr std::uint32_t low_word(std::uint64_t value) noexcept { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high_word(std::uint64_t value) noexcept { return static_cast<std::uint32_t>(value >> 32); }

constexpr Block philox4x32(Block counter, Key key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0], b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {high_word(b) ^ counter[1] ^ key[0], low_word(b), high_word(a) ^ counter[3] ^ key[1], low_word(a)};
    key[0] += 0x9E3779B9u;  // the golden ratio
    key[1] += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

/// Draws 4 * block … 4 * block + 3 of a KeyedGenerator with this key() and stream().
constexpr Block draws(std::uint64_t key, std::uint64_t stream, std::uint64_t block) noexcept {
  return philox4x32({low_word(block), high_word(block), low_word(stream), high_word(stream)},
                    {low_word(key), high_word(key)});
}

/// [0, 1), multiples of 2^-24.
constexpr float to_uniform(std::uint32_t bits) noexcept { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace everyo::philox
