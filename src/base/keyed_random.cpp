#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "everyo/context.h"
#include "everyo/random.h"

namespace everyo::inline v1 {

using philox::high_word;
using philox::low_word;

DrawKey DrawKey::here(std::uint32_t site) noexcept {
  const Context& c = context();
  return {.seed = c.seed,
          .step = c.step,
          .path_hash = c.scope != nullptr ? c.scope->path_hash : 0,
          .micro_batch = static_cast<std::uint32_t>(c.rank) << 24 | static_cast<std::uint32_t>(c.micro_batch),
          .site = site};
}

KeyedGenerator::KeyedGenerator(const DrawKey& key) noexcept {
  // 256 bits of key become Philox's 64 of key and 64 of counter by Philox itself; each pass is a bijection of its
  // counter.
  const philox::Block first =
      philox::philox4x32({low_word(key.step), high_word(key.step), low_word(key.path_hash), high_word(key.path_hash)},
                         {low_word(key.seed), high_word(key.seed)});
  const philox::Block mixed = philox::philox4x32(first, {key.micro_batch, key.site});
  key_ = mixed[0] | static_cast<std::uint64_t>(mixed[1]) << 32;
  stream_ = mixed[2] | static_cast<std::uint64_t>(mixed[3]) << 32;
}

std::uint32_t KeyedGenerator::bits(std::uint64_t index) const noexcept {
  return philox::draws(key_, stream_, index / 4)[index % 4];
}

float KeyedGenerator::uniform(std::uint64_t index) const noexcept { return philox::to_uniform(bits(index)); }

void KeyedGenerator::uniform(std::uint64_t first, std::span<float> out) const noexcept {
  std::size_t i = 0;
  while (i < out.size()) {
    const std::uint64_t index = first + i;
    const philox::Block block = philox::draws(key_, stream_, index / 4);
    const std::size_t lane = index % 4, count = std::min<std::size_t>(4 - lane, out.size() - i);
    for (std::size_t k = 0; k < count; ++k) out[i + k] = philox::to_uniform(block[lane + k]);
    i += count;
  }
}

double KeyedGenerator::standard_normal(std::uint64_t index) const noexcept {
  // Two 32-bit draws; counted from the end of the indices, where uniform draws do not reach.
  const philox::Block block = philox::draws(key_, stream_, ~(index / 2));
  const std::size_t lane = 2 * (index % 2);
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(block[lane]) + 1) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(block[lane + 1]) * 0x1p-32);
}

}  // namespace everyo::inline v1
