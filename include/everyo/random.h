#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// NumPy's SeedSequence: spreads a seed over the 128 bits that a generator starts from.
class EVERYO_API SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed);
  /// An integer of any size as its 32-bit words, lowest first, or a list of such integers one after the other.
  explicit SeedSequence(std::span<const std::uint32_t> words);

  /// `words.size()` words that depend on the whole seed.
  void generate_state(std::span<std::uint32_t> words) const;
  /// `count` children whose draws are independent of this one's and of each other's; a second call gives further ones.
  std::vector<SeedSequence> spawn(std::size_t count);

 private:
  SeedSequence(std::span<const std::uint32_t> words, std::span<const std::uint32_t> spawn_key);

  std::vector<std::uint32_t> words_, spawn_key_;
  std::array<std::uint32_t, 4> pool_{};
  std::uint32_t children_ = 0;
};

/// All that a Generator's later draws depend on (what NumPy shows as `bit_generator.state`).
struct GeneratorState {
  std::uint64_t state_high = 0, state_low = 0;
  std::uint64_t increment_high = 0, increment_low = 0;
  bool has_uint32 = false;  ///< the upper half of a 64-bit draw waits in `uinteger`
  std::uint32_t uinteger = 0;
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// `numpy.random.default_rng(seed)`: the same draws to the bit (PCG64, O'Neill 2014, XSL-RR 128/64). A value: a copy
/// draws what the original would have drawn. Not for use from two threads at once.
class EVERYO_API Generator {
 public:
  explicit Generator(std::uint64_t seed) : Generator(SeedSequence(seed)) {}
  explicit Generator(const SeedSequence& seed);
  explicit Generator(const GeneratorState& state) noexcept : state_(state) {}

  std::uint64_t next_uint64() noexcept;
  /// Halves of 64-bit draws, the lower one first.
  std::uint32_t next_uint32() noexcept;

  /// [0, 1), multiples of 2^-53.
  double random() noexcept;
  /// [0, 1), multiples of 2^-24: NumPy's `random(dtype=float32)`.
  float random_f() noexcept;
  void random(std::span<double> out) noexcept;
  void random(std::span<float> out) noexcept;

  /// [low, high). Throws ValueError for high < low or a range that is not finite.
  double uniform(double low, double high);
  void uniform(double low, double high, std::span<double> out);
  /// Drawn as doubles, then rounded: NumPy's `uniform(low, high, n).astype(float32)`.
  void uniform(double low, double high, std::span<float> out);

  double standard_normal() noexcept;
  /// NumPy's `standard_normal(dtype=float32)`: other draws than the double ones.
  float standard_normal_f() noexcept;
  void standard_normal(std::span<double> out) noexcept;
  void standard_normal(std::span<float> out) noexcept;

  /// Mean `mean`, standard deviation `deviation`. Throws ValueError for a deviation below 0 or NaN.
  double normal(double mean = 0, double deviation = 1);
  void normal(double mean, double deviation, std::span<double> out);
  /// Drawn as doubles, then rounded: NumPy's `normal(mean, deviation, n).astype(float32)`.
  void normal(double mean, double deviation, std::span<float> out);

  /// low … high-1. Throws ValueError for high <= low.
  std::int64_t integers(std::int64_t low, std::int64_t high);
  void integers(std::int64_t low, std::int64_t high, std::span<std::int64_t> out);

  /// 0 … max, both included: what shuffling draws its indices by.
  std::uint64_t interval(std::uint64_t max) noexcept;
  /// Puts the values into random order (Fisher and Yates, from the last one down).
  template <class T>
  void shuffle(std::span<T> values) noexcept {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(i)]);
  }
  /// 0 … count-1 in random order. Throws ValueError for a negative count.
  std::vector<std::int64_t> permutation(std::int64_t count);

  /// The generator that has drawn `jumps` times 2.1e38 numbers more: a stream that does not overlap this one.
  [[nodiscard]] Generator jumped(std::uint64_t jumps = 1) const noexcept;

  [[nodiscard]] const GeneratorState& state() const noexcept { return state_; }
  void set_state(const GeneratorState& state) noexcept { state_ = state; }

 private:
  GeneratorState state_;
};

/// What a keyed draw depends on beside its index. Equal keys give equal draws on any thread, rank or machine.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t path_hash = 0;    ///< of the dotted path of the module that draws
  std::uint32_t micro_batch = 0;  ///< and above its 24 bits the rank
  std::uint32_t site = 0;         ///< tells several draws of one module apart

  /// The key of a draw made now: seed, step, module, rank and micro-batch of this thread's context.
  EVERYO_API static DrawKey here(std::uint32_t site = 0) noexcept;
};

/// A generator without a stream: draw number `index` is a function of (key, index) alone, so work may be split in any
/// way and dropout's mask can be made again instead of kept. Philox 4x32-10 (Salmon et al., "Parallel random numbers:
/// as easy as 1, 2, 3", 2011). The index is the element's, counted over the global batch where ranks must agree.
class EVERYO_API KeyedGenerator {
 public:
  explicit KeyedGenerator(const DrawKey& key) noexcept;

  /// 32 random bits.
  [[nodiscard]] std::uint32_t bits(std::uint64_t index) const noexcept;
  /// [0, 1), multiples of 2^-24.
  [[nodiscard]] float uniform(std::uint64_t index) const noexcept;
  /// out[i] = uniform(first + i).
  void uniform(std::uint64_t first, std::span<float> out) const noexcept;
  /// Mean 0, deviation 1, by the polar angle of two uniform draws (Box and Muller 1958).
  [[nodiscard]] double standard_normal(std::uint64_t index) const noexcept;

  /// Philox's key, and the upper half of its counter; the lower half is index / 4.
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }
  [[nodiscard]] std::uint64_t stream() const noexcept { return stream_; }

 private:
  std::uint64_t key_, stream_;
};

}  // namespace everyo::inline v1
