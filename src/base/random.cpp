#include "everyo/random.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/ziggurat_tables.h"
#include "everyo/error.h"

// Which bits of a draw mean what, and in which order further draws are made, follows numpy/random (distributions.c,
// _generator.pyx): it decides whether the numbers are NumPy's.
namespace everyo::inline v1 {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide wide(std::uint64_t high, std::uint64_t low) noexcept { return static_cast<Wide>(high) << 64 | low; }
constexpr std::uint64_t high_of(Wide value) noexcept { return static_cast<std::uint64_t>(value >> 64); }
constexpr std::uint64_t low_of(Wide value) noexcept { return static_cast<std::uint64_t>(value); }

constexpr Wide multiplier = wide(2549297995355413924u, 4865540595714422341u);
/// (golden ratio - 1) * 2^128, NumPy's length of a jump.
constexpr Wide jump_length = wide(0x9e3779b97f4a7c15u, 0xf39cc0605cedc835u);

/// The state after `count` steps of state * multiplier + increment, by squaring (Brown 1994).
constexpr Wide advance(Wide state, Wide increment, Wide count) noexcept {
  Wide factor = 1, sum = 0, square = multiplier, plus = increment;
  for (; count > 0; count >>= 1) {
    if ((count & 1) != 0) {
      factor *= square;
      sum = sum * square + plus;
    }
    plus *= square + 1;
    square *= square;
  }
  return factor * state + sum;
}

double checked_range(double low, double high) {
  const double range = high - low;
  if (std::isfinite(range) && range >= 0) return range;
  throw ValueError(fmt::format("[uniform] low is {}, high is {}; need low <= high and a finite range", low, high));
}

void check_deviation(double deviation) {
  if (deviation >= 0) return;
  throw ValueError(fmt::format("[normal] deviation is {}; need 0 or more", deviation));
}

void check_bounds(std::int64_t low, std::int64_t high) {
  if (low < high) return;
  throw ValueError(fmt::format("[integers] low is {}, high is {}; need low < high", low, high));
}

/// 0 … last by Lemire's multiplication ("Fast random integer generation in an interval", 2019). `Draw` and `Product`
/// are an unsigned type and one of twice its width; last is below Draw's largest value.
template <class Draw, class Product, class F>
Draw bounded(Draw last, F&& next) noexcept {
  constexpr int bits = std::numeric_limits<Draw>::digits;
  const Draw count = last + 1;
  Product product = static_cast<Product>(next()) * count;
  if (static_cast<Draw>(product) < count) {
    const Draw threshold = (std::numeric_limits<Draw>::max() - last) % count;
    while (static_cast<Draw>(product) < threshold) product = static_cast<Product>(next()) * count;
  }
  return static_cast<Draw>(product >> bits);
}

std::uint64_t bounded_offset(Generator& generator, std::uint64_t last) noexcept {
  constexpr std::uint64_t last32 = std::numeric_limits<std::uint32_t>::max();
  if (last == 0) return 0;
  if (last == last32) return generator.next_uint32();
  if (last < last32) {
    return bounded<std::uint32_t, std::uint64_t>(static_cast<std::uint32_t>(last),
                                                 [&] { return generator.next_uint32(); });
  }
  // All 2^64 values cannot be asked for: high is excluded.
  return bounded<std::uint64_t, Wide>(last, [&] { return generator.next_uint64(); });
}

}  // namespace

Generator::Generator(const SeedSequence& seed) {
  std::array<std::uint32_t, 8> words;
  seed.generate_state(words);
  const auto pair = [&](std::size_t i) { return words[2 * i] | static_cast<std::uint64_t>(words[2 * i + 1]) << 32; };
  const Wide increment = wide(pair(2), pair(3)) << 1 | 1;
  const Wide state = (increment + wide(pair(0), pair(1))) * multiplier + increment;
  state_ = {high_of(state), low_of(state), high_of(increment), low_of(increment)};
}

std::uint64_t Generator::next_uint64() noexcept {
  const Wide state =
      wide(state_.state_high, state_.state_low) * multiplier + wide(state_.increment_high, state_.increment_low);
  state_.state_high = high_of(state);
  state_.state_low = low_of(state);
  return std::rotr(state_.state_high ^ state_.state_low, static_cast<int>(state_.state_high >> 58));
}

std::uint32_t Generator::next_uint32() noexcept {
  if (std::exchange(state_.has_uint32, false)) return state_.uinteger;
  const std::uint64_t both = next_uint64();
  state_.has_uint32 = true;
  state_.uinteger = static_cast<std::uint32_t>(both >> 32);
  return static_cast<std::uint32_t>(both);
}

double Generator::random() noexcept { return static_cast<double>(next_uint64() >> 11) * 0x1p-53; }
float Generator::random_f() noexcept { return static_cast<float>(next_uint32() >> 8) * 0x1p-24f; }

void Generator::random(std::span<double> out) noexcept {
  for (double& value : out) value = random();
}
void Generator::random(std::span<float> out) noexcept {
  for (float& value : out) value = random_f();
}

double Generator::uniform(double low, double high) {
  const double range = checked_range(low, high);
  return low + range * random();
}
void Generator::uniform(double low, double high, std::span<double> out) {
  const double range = checked_range(low, high);
  for (double& value : out) value = low + range * random();
}
void Generator::uniform(double low, double high, std::span<float> out) {
  const double range = checked_range(low, high);
  for (float& value : out) value = static_cast<float>(low + range * random());
}

double Generator::standard_normal() noexcept {
  for (;;) {
    // 64 bits: 8 choose the strip, 1 the sign, 52 the place; 3 are left over.
    const std::uint64_t draw = next_uint64(), place = draw >> 9 & 0x000fffffffffffffu;
    const std::size_t strip = draw & 0xffu;
    const double magnitude = static_cast<double>(place) * ziggurat::width[strip];
    const double x = (draw >> 8 & 1u) != 0 ? -magnitude : magnitude;
    if (place < ziggurat::inside[strip]) return x;
    if (strip == 0) {
      for (;;) {
        const double beyond = -ziggurat::inverse_tail * std::log1p(-random());
        const double exponential = -std::log1p(-random());
        if (exponential + exponential <= beyond * beyond) continue;
        return (place >> 8 & 1u) != 0 ? -(ziggurat::tail + beyond) : ziggurat::tail + beyond;
      }
    }
    const double drop = ziggurat::height[strip - 1] - ziggurat::height[strip];
    if (drop * random() + ziggurat::height[strip] < std::exp(-0.5 * x * x)) return x;
  }
}

float Generator::standard_normal_f() noexcept {
  constexpr auto tail = static_cast<float>(ziggurat::tail), inverse_tail = static_cast<float>(ziggurat::inverse_tail);
  constexpr const ziggurat::FloatTables& tables = ziggurat::float_tables;
  for (;;) {
    const std::uint32_t draw = next_uint32(), place = draw >> 9;
    const std::size_t strip = draw & 0xffu;
    const float magnitude = static_cast<float>(place) * tables.width[strip];
    const float x = (draw >> 8 & 1u) != 0 ? -magnitude : magnitude;
    if (place < tables.inside[strip]) return x;
    if (strip == 0) {
      for (;;) {
        const float beyond = -inverse_tail * std::log1p(-random_f());
        const float exponential = -std::log1p(-random_f());
        if (exponential + exponential <= beyond * beyond) continue;
        return (place >> 8 & 1u) != 0 ? -(tail + beyond) : tail + beyond;
      }
    }
    const float drop = tables.height[strip - 1] - tables.height[strip];
    const double density = std::exp(-0.5 * static_cast<double>(x) * static_cast<double>(x));
    if (static_cast<double>(drop * random_f() + tables.height[strip]) < density) return x;
  }
}

void Generator::standard_normal(std::span<double> out) noexcept {
  for (double& value : out) value = standard_normal();
}
void Generator::standard_normal(std::span<float> out) noexcept {
  for (float& value : out) value = standard_normal_f();
}

double Generator::normal(double mean, double deviation) {
  check_deviation(deviation);
  return mean + deviation * standard_normal();
}
void Generator::normal(double mean, double deviation, std::span<double> out) {
  check_deviation(deviation);
  for (double& value : out) value = mean + deviation * standard_normal();
}
void Generator::normal(double mean, double deviation, std::span<float> out) {
  check_deviation(deviation);
  for (float& value : out) value = static_cast<float>(mean + deviation * standard_normal());
}

std::int64_t Generator::integers(std::int64_t low, std::int64_t high) {
  check_bounds(low, high);
  const auto first = static_cast<std::uint64_t>(low);  // unsigned: the range may exceed int64
  return static_cast<std::int64_t>(first + bounded_offset(*this, static_cast<std::uint64_t>(high) - 1 - first));
}
void Generator::integers(std::int64_t low, std::int64_t high, std::span<std::int64_t> out) {
  check_bounds(low, high);
  for (std::int64_t& value : out) value = integers(low, high);
}

std::uint64_t Generator::interval(std::uint64_t max) noexcept {
  if (max == 0) return 0;
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(max);
  const bool narrow = max <= std::numeric_limits<std::uint32_t>::max();
  for (;;) {
    const std::uint64_t value = mask & (narrow ? next_uint32() : next_uint64());
    if (value <= max) return value;
  }
}

std::vector<std::int64_t> Generator::permutation(std::int64_t count) {
  if (count < 0) throw ValueError(fmt::format("[permutation] count is {}; need 0 or more", count));
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  shuffle(std::span(order));
  return order;
}

Generator Generator::jumped(std::uint64_t jumps) const noexcept {
  const Wide state = advance(wide(state_.state_high, state_.state_low),
                             wide(state_.increment_high, state_.increment_low), jump_length * jumps);
  return Generator(GeneratorState{high_of(state), low_of(state), state_.increment_high, state_.increment_low});
}

}  // namespace everyo::inline v1
