#include "verify/casts.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "everyo/ops.h"
#include "verify/topics.h"

namespace everyo::verify_room {
namespace {

/// The neighbour of a half towards zero when it was rounded away from it.
template <class Half>
Half truncated(Half rounded, float x) {
  const bool away = std::isfinite(x) && std::abs(to_float(rounded)) > std::abs(x);
  return away ? Half{static_cast<std::uint16_t>(rounded.bits - 1)} : rounded;
}

template <class Half>
Tensor cast_with(const Tensor& x, DType dtype, CastFault fault) {
  const FloatInfo info = finfo(dtype);
  const Tensor out = cast(x, dtype).copy();
  const auto from = x.data<float>();
  const auto to = out.data<Half>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const float value = to_float(to[i]);
    if (fault == CastFault::truncates) to[i] = truncated(to[i], from[i]);
    if (fault == CastFault::flushes_subnormals && static_cast<double>(std::abs(value)) < info.smallest_normal)
      to[i] = Half{};
    if (fault == CastFault::saturates && std::isinf(value))
      to[i] = narrow<Half>(static_cast<float>(std::copysign(info.max, static_cast<double>(value))));
  }
  return out;
}

/// As many wrong bits as casting every finite half, its bits taken from 0 to infinity's, and every midpoint of two
/// neighbours gives: a half is kept, a midpoint goes to the even neighbour.
template <class Half>
double wrong_casts(DType dtype, CastFault fault) {
  const auto count = static_cast<std::int64_t>(narrow<Half>(HUGE_VALF).bits);
  const Tensor exact = Tensor::empty({2, count}), midpoints = Tensor::empty({2, count});  // positive, negative
  const auto e = exact.data<float>(), m = midpoints.data<float>();
  for (std::size_t i = 0, n = static_cast<std::size_t>(count); i < n; ++i) {
    e[i] = to_float(Half{static_cast<std::uint16_t>(i)});
    // The midpoint above the largest finite value is where it would lie if the exponent went on.
    const double step =
        i + 1 < n ? static_cast<double>(to_float(Half{static_cast<std::uint16_t>(i + 1)})) - static_cast<double>(e[i])
                  : static_cast<double>(e[i]) - static_cast<double>(e[i - 1]);
    m[i] = static_cast<float>(static_cast<double>(e[i]) + step / 2);
    e[n + i] = -e[i];
    m[n + i] = -m[i];
  }
  const auto kept = faulty_cast(exact, dtype, fault), rounded = faulty_cast(midpoints, dtype, fault);
  const auto k = kept.data<Half>(), r = rounded.data<Half>();
  constexpr std::uint16_t sign = 0x8000;
  double wrong = 0;
  for (std::size_t i = 0; i < k.size(); ++i) {
    const bool negative = i >= static_cast<std::size_t>(count);
    const auto bits = static_cast<std::uint16_t>(i % static_cast<std::size_t>(count));
    const auto even = static_cast<std::uint16_t>(bits + (bits & 1u));
    const std::uint16_t with = negative ? sign : 0;
    wrong += (k[i].bits != (bits | with)) + (r[i].bits != (even | with));
  }
  return wrong;
}

/// eps, smallest normal, smallest subnormal and largest value, found by casting powers of two.
std::vector<double> limits_by_casts(DType dtype) {
  const auto survives = [&](double value) {  // the cast changes nothing
    return cast(Tensor::scalar(value, float64), dtype).item() == value;
  };
  double eps = 1, normal = 1, subnormal = 1, largest = 1;
  while (survives(1 + eps / 2)) eps /= 2;
  while (survives(normal / 2 * (1 + eps))) normal /= 2;
  while (survives(subnormal / 2)) subnormal /= 2;
  while (survives(largest * 2)) largest *= 2;
  return {eps, normal, subnormal, largest * (2 - eps)};
}

/// What finfo says, if casts agree; else NaN.
std::vector<double> limits(DType dtype, DType told) {
  const FloatInfo info = finfo(told);
  std::vector<double> said{info.eps, info.smallest_normal, info.smallest_subnormal, info.max};
  const std::vector<double> found = limits_by_casts(dtype);
  for (std::size_t i = 0; i < said.size(); ++i)
    if (said[i] != found[i]) said[i] = std::nan("");
  return said;
}

}  // namespace

Tensor faulty_cast(const Tensor& x, DType dtype, CastFault fault) {
  if (fault == CastFault::none) return cast(x, dtype);
  return dtype == float16 ? cast_with<Float16>(x, dtype, fault) : cast_with<BFloat16>(x, dtype, fault);
}

void add_cast_checks(std::vector<verify::Check>& checks, const Figures& figures) {
  checks.push_back(
      {.requirement = "P1",
       .what = "small values after a cast to float16",
       .figure = figures.at("float16_small_values"),
       .measure =
           [](bool sabotaged) {
             const Tensor x = Tensor::from<float>({1e-6f, 1e-7f, 1e-8f, 1e-9f});
             return faulty_cast(x, float16, sabotaged ? CastFault::flushes_subnormals : CastFault::none).to_vector();
           },
       .sabotage = "the cast flushes subnormals to zero",
       .note = "below 3e-8 a float16 holds nothing: what trains in it must be scaled",
       .columns = {"1e-6", "1e-7", "1e-8", "1e-9"}});
  checks.push_back({.requirement = "P1",
                    .what = "float16 casts of all values and midpoints that are wrong",
                    .figure = figures.at("float16_wrong_casts"),
                    .measure =
                        [](bool sabotaged) {
                          return std::vector{
                              wrong_casts<Float16>(float16, sabotaged ? CastFault::truncates : CastFault::none)};
                        },
                    .sabotage = "the cast truncates instead of rounding to the nearest"});
  checks.push_back({.requirement = "P1",
                    .what = "bfloat16 casts of all values and midpoints that are wrong",
                    .figure = figures.at("bfloat16_wrong_casts"),
                    .measure =
                        [](bool sabotaged) {
                          return std::vector{
                              wrong_casts<BFloat16>(bfloat16, sabotaged ? CastFault::truncates : CastFault::none)};
                        },
                    .sabotage = "the cast truncates instead of rounding to the nearest"});
  struct Limits {
    DType dtype, other;
    const char* sabotage;
  };
  for (const auto& [dtype, other, sabotage] : {Limits{float16, bfloat16, "bfloat16's limits are told for it"},
                                               Limits{bfloat16, float16, "float16's limits are told for it"},
                                               Limits{float32, float64, "float64's limits are told for it"}}) {
    const std::string name(name_of(dtype));
    checks.push_back(
        {.requirement = "P1",
         .what = name + ": its limits, told and found by casts",
         .figure = figures.at(name + "_limits"),
         .measure = [dtype = dtype, other = other](bool sabotaged) { return limits(dtype, sabotaged ? other : dtype); },
         .sabotage = sabotage,
         .columns = {"eps", "smallest normal", "smallest subnormal", "largest"}});
  }
}

}  // namespace everyo::verify_room
