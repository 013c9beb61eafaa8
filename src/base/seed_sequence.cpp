#include <algorithm>

#include "everyo/random.h"

// The hash of NumPy's SeedSequence (numpy/random/bit_generator.pyx, after O'Neill's seed_seq_fe), with its constants.
namespace everyo::inline v1 {
namespace {

/// One word through a multiplier that moves on with every use.
class Hash {
 public:
  constexpr Hash(std::uint32_t start, std::uint32_t factor) noexcept : multiplier_(start), factor_(factor) {}
  constexpr std::uint32_t operator()(std::uint32_t word) noexcept {
    word ^= multiplier_;
    multiplier_ *= factor_;
    word *= multiplier_;
    return word ^ word >> 16;
  }

 private:
  std::uint32_t multiplier_, factor_;
};

constexpr std::uint32_t mix(std::uint32_t x, std::uint32_t y) noexcept {
  const std::uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ mixed >> 16;
}

std::array<std::uint32_t, 4> mix_pool(std::span<const std::uint32_t> words) noexcept {
  std::array<std::uint32_t, 4> pool{};
  Hash hash(0x43b0d7e5u, 0x931e8875u);
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i < words.size() ? words[i] : 0u);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  for (std::size_t from = pool.size(); from < words.size(); ++from) {
    for (std::uint32_t& word : pool) word = mix(word, hash(words[from]));
  }
  return pool;
}

std::vector<std::uint32_t> words_of(std::uint64_t seed) {
  const auto low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
  return high == 0 ? std::vector{low} : std::vector{low, high};
}

}  // namespace

SeedSequence::SeedSequence(std::uint64_t seed) : SeedSequence(words_of(seed), {}) {}
SeedSequence::SeedSequence(std::span<const std::uint32_t> words) : SeedSequence(words, {}) {}

SeedSequence::SeedSequence(std::span<const std::uint32_t> words, std::span<const std::uint32_t> spawn_key)
    : words_(words.begin(), words.end()), spawn_key_(spawn_key.begin(), spawn_key.end()) {
  std::vector<std::uint32_t> all = words_;
  // A short seed is filled up before a spawn key, so that no key reads like a longer seed.
  if (!spawn_key_.empty() && all.size() < pool_.size()) all.resize(pool_.size());
  all.insert(all.end(), spawn_key_.begin(), spawn_key_.end());
  pool_ = mix_pool(all);
}

void SeedSequence::generate_state(std::span<std::uint32_t> words) const {
  Hash hash(0x8b51f9ddu, 0x58f38dedu);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = hash(pool_[i % pool_.size()]);
}

std::vector<SeedSequence> SeedSequence::spawn(std::size_t count) {
  std::vector<SeedSequence> children;
  children.reserve(count);
  std::vector<std::uint32_t> key = spawn_key_;
  key.push_back(0);
  for (std::size_t i = 0; i < count; ++i) {
    key.back() = children_++;
    children.push_back(SeedSequence(words_, key));
  }
  return children;
}

}  // namespace everyo::inline v1
