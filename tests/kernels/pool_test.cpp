#include "kernels/pool.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "everyo/context.h"
#include "everyo/half.h"
#include "kernels/each_target.h"

namespace everyo {
namespace {

using kernels::PoolAxis;
using kernels::PoolShape;

// Multiples of 1/8 in [-2, 2]: sums of some hundred are exact in every dtype's wide form.
template <class T>
std::vector<T> eighths(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = narrow<T>((static_cast<double>(engine() % 33) - 16) / 8);
  return values;
}

std::int64_t inputs(const PoolShape& s) { return s.batch * s.height.input * s.width.input * s.channels; }
std::int64_t outputs(const PoolShape& s) { return s.batch * s.height.output * s.width.output * s.channels; }

// The image's cells of window o, each with its number in the window, by the definition.
struct Cell {
  std::int64_t at, tap;
};
std::vector<Cell> cells_of(const PoolAxis& a, std::int64_t o) {
  std::vector<Cell> list;
  if (a.window == 0) {
    const std::int64_t end = ((o + 1) * a.input + a.output - 1) / a.output;
    for (std::int64_t at = o * a.input / a.output; at < end; ++at) list.push_back({at, 0});
    return list;
  }
  for (std::int64_t tap = 0; tap < a.window; ++tap) {
    const std::int64_t at = o * a.stride - a.before + tap * a.dilation;
    if (at >= 0 && at < a.input) list.push_back({at, tap});
  }
  return list;
}

// f(index in y, pairs of index in x and number in the window) for each output.
template <class F>
void for_each_window(const PoolShape& s, F&& f) {
  const PoolAxis &h = s.height, &w = s.width;
  std::size_t out = 0;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oh = 0; oh < h.output; ++oh)
      for (std::int64_t ow = 0; ow < w.output; ++ow)
        for (std::int64_t c = 0; c < s.channels; ++c, ++out) {
          std::vector<std::pair<std::size_t, std::int64_t>> cells;
          for (const Cell& row : cells_of(h, oh))
            for (const Cell& column : cells_of(w, ow))
              cells.emplace_back(((n * h.input + row.at) * w.input + column.at) * s.channels + c,
                                 row.tap * w.window + column.tap);
          f(out, cells);
        }
}

// Fields of an axis: input, output, window, stride, dilation, before, after.
const std::vector<PoolShape>& shapes() {
  static const std::vector<PoolShape> list = [] {
    constexpr PoolAxis pairs{8, 4, 2, 2}, odd{5, 2, 2, 2}, threes{7, 4, 3, 2, 1, 1, 1}, ceil{7, 4, 2, 2},
        gaps{9, 3, 2, 3}, dilated{9, 3, 3, 2, 2, 0, 0}, wide{16, 1, 16, 16}, wider{17, 1, 17, 17},
        dense{6, 6, 3, 1, 1, 1, 1}, single{4, 4, 1, 1}, dilated_padded{5, 4, 2, 1, 3, 1, 1};
    std::vector<PoolShape> shapes;
    for (const std::int64_t channels : {1, 3, 8, 17, 40})
      for (const auto& [h, w] :
           {std::pair(pairs, pairs), std::pair(odd, pairs), std::pair(pairs, odd), std::pair(threes, threes),
            std::pair(ceil, ceil), std::pair(gaps, pairs), std::pair(dilated, dense), std::pair(wide, wide),
            std::pair(wider, wide), std::pair(dense, dense), std::pair(single, threes), std::pair(dilated_padded, odd)})
        shapes.push_back({2, channels, h, w});
    shapes.push_back({0, 3, pairs, pairs});
    shapes.push_back({2, 0, pairs, pairs});
    return shapes;
  }();
  return list;
}

// Winners as numbers, whatever they are stored as.
template <class T>
struct Pooled {
  std::vector<T> y;
  std::vector<std::int64_t> winners;
  std::vector<std::byte> raw_winners;
};
template <class T>
Pooled<T> max_pooled(const PoolShape& s, const std::vector<T>& x) {
  const DType stored = kernels::winner_dtype(s.height.window * s.width.window);
  Pooled<T> result{std::vector<T>(static_cast<std::size_t>(outputs(s))), {}, {}};
  result.raw_winners.resize(result.y.size() * size_of(stored));
  kernels::max_pool(dtype_v<T>, s, x.data(), result.y.data(), result.raw_winners.data());
  for (std::size_t i = 0; i < result.y.size(); ++i) {
    std::int32_t number = 0;  // little-endian, as everywhere in this library
    std::memcpy(&number, result.raw_winners.data() + i * size_of(stored), size_of(stored));
    result.winners.push_back(number);
  }
  return result;
}

template <class T>
class Pool : public testing::Test {};
using FloatingTypes = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(Pool, FloatingTypes);

TYPED_TEST(Pool, MaxIsTheFirstGreatestOfEachWindow) {
  using T = TypeParam;
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      const auto x = eighths<T>(inputs(s), 1);  // few values, so that there are ties
      const Pooled<T> got = max_pooled(s, x);
      std::vector<T> without(got.y.size());
      kernels::max_pool(dtype_v<T>, s, x.data(), without.data(), nullptr);
      for_each_window(s, [&](std::size_t out, const auto& cells) {
        auto best = cells.front();
        for (const auto& cell : cells)
          if (widen(x[cell.first]) > widen(x[best.first])) best = cell;
        ASSERT_EQ(widen(got.y[out]), widen(x[best.first])) << out;
        ASSERT_EQ(widen(without[out]), widen(x[best.first])) << out;
        ASSERT_EQ(got.winners[out], best.second) << out;
      });
    }
  });
}

TYPED_TEST(Pool, MaxGivesEachWinnerTheSumOfItsWindows) {
  using T = TypeParam;
  for_each_target([] {
    for (const PoolShape& s : shapes()) {
      const auto x = eighths<T>(inputs(s), 1), g = eighths<T>(outputs(s), 2);
      const Pooled<T> pooled = max_pooled(s, x);
      std::vector<double> want(x.size());
      for_each_window(s, [&](std::size_t out, const auto& cells) {
        for (const auto& [at, tap] : cells)
          if (tap == pooled.winners[out]) want[at] += static_cast<double>(widen(g[out]));
      });
      std::vector<T> got(x.size(), narrow<T>(99));
      kernels::max_pool_backward(dtype_v<T>, s, pooled.raw_winners.data(), g.data(), got.data());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(static_cast<double>(widen(got[i])), want[i]) << i;
    }
  });
}

// Windows whose cells depend on the image's size alone.
std::vector<PoolShape> average_shapes() {
  std::vector<PoolShape> list;
  for (const PoolShape& s : shapes())
    if (s.height.dilation == 1 && s.width.dilation == 1) list.push_back(s);
  for (const std::int64_t channels : {1, 3, 17}) {
    list.push_back({2, channels, {.input = 6, .output = 3}, {.input = 4, .output = 2}});  // tiles
    list.push_back({2, channels, {.input = 7, .output = 3}, {.input = 5, .output = 2}});
    list.push_back({2, channels, {.input = 3, .output = 5}, {.input = 2, .output = 7}});
    list.push_back({1, channels, {70, 1, 70, 70}, {40, 1, 40, 40}});  // sums of several blocks
  }
  return list;
}
double divisor(const PoolShape& s, std::size_t out, std::size_t cells, bool count_padding) {
  if (!count_padding) return static_cast<double>(cells);
  const auto covered = [](const PoolAxis& a, std::int64_t o) {
    return std::min(o * a.stride - a.before + a.window, a.input + a.after) - (o * a.stride - a.before);
  };
  const auto place = static_cast<std::int64_t>(out) / s.channels;
  const std::int64_t ow = place % s.width.output, oh = place / s.width.output % s.height.output;
  return static_cast<double>(covered(s.height, oh) * covered(s.width, ow));
}

TYPED_TEST(Pool, AverageIsTheExactSumDividedOnce) {
  using T = TypeParam;
  for_each_target([] {
    for (const PoolShape& s : average_shapes())
      for (const bool count_padding : {false, true}) {
        if (count_padding && s.height.window == 0) continue;
        const auto x = eighths<T>(inputs(s), 1);
        std::vector<T> got(static_cast<std::size_t>(outputs(s)));
        kernels::average_pool(dtype_v<T>, s, count_padding, x.data(), got.data());
        for_each_window(s, [&](std::size_t out, const auto& cells) {
          double sum = 0;
          for (const auto& [at, tap] : cells) sum += static_cast<double>(widen(x[at]));
          using Wide = decltype(widen(T()));
          const Wide want = static_cast<Wide>(sum) / static_cast<Wide>(divisor(s, out, cells.size(), count_padding));
          ASSERT_EQ(widen(got[out]), widen(narrow<T>(want))) << out;
        });
      }
  });
}

TYPED_TEST(Pool, AverageSharesItsGradient) {
  using T = TypeParam;
  // A share is two roundings of the wide form from the quotient, each sum of at most 15 one more; halves round once
  // more.
  const double relative = 20 * finfo(is_half(dtype_v<T>) ? float32 : dtype_v<T>).eps +
                          (is_half(dtype_v<T>) ? finfo(dtype_v<T>).eps / 2 : 0);
  for_each_target([relative] {
    for (const PoolShape& s : average_shapes())
      for (const bool count_padding : {false, true}) {
        if (count_padding && s.height.window == 0) continue;
        const auto g = eighths<T>(outputs(s), 2);
        std::vector<double> want(static_cast<std::size_t>(inputs(s))), scale(want.size());
        for_each_window(s, [&](std::size_t out, const auto& cells) {
          const double share = static_cast<double>(widen(g[out])) / divisor(s, out, cells.size(), count_padding);
          for (const auto& [at, tap] : cells) {
            want[at] += share;
            scale[at] += std::abs(share);
          }
        });
        std::vector<T> got(want.size(), narrow<T>(99));
        kernels::average_pool_backward(dtype_v<T>, s, count_padding, g.data(), got.data());
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(static_cast<double>(widen(got[i])), want[i], relative * scale[i]) << i;
      }
  });
}

TYPED_TEST(Pool, SameBitsForAnyThreads) {
  using T = TypeParam;
  const PoolShape s{3, 19, {90, 45, 3, 2, 1, 1, 1}, {70, 35, 3, 2, 1, 1, 1}};  // several blocks, windows that overlap
  const auto x = eighths<T>(inputs(s), 1), g = eighths<T>(outputs(s), 2);
  std::vector<std::vector<T>> first;
  for (const int threads : {1, 2, 3}) {
    const ThreadLimit limit(threads);
    const Pooled<T> most = max_pooled(s, x);
    std::vector<T> mean(g.size()), of_most(x.size()), of_mean(x.size());
    kernels::max_pool_backward(dtype_v<T>, s, most.raw_winners.data(), g.data(), of_most.data());
    kernels::average_pool(dtype_v<T>, s, false, x.data(), mean.data());
    kernels::average_pool_backward(dtype_v<T>, s, false, g.data(), of_mean.data());
    const std::vector<std::vector<T>> results{most.y, mean, of_most, of_mean};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i)
      ASSERT_EQ(0, std::memcmp(results[i].data(), first[i].data(), results[i].size() * sizeof(T))) << threads << i;
  }
}

TYPED_TEST(Pool, NaNAndInfinitiesWinAndLose) {
  using T = TypeParam;
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  // Windows of 1 x 4, one channel each: the first NaN wins; of -inf alone the first; of zeros the first.
  const std::array<std::array<float, 4>, 4> windows{
      {{1, nan, 5, nan}, {-inf, -inf, -inf, -inf}, {-inf, -0.0f, 0.0f, -1}, {inf, 3, inf, -inf}}};
  const std::array<std::int64_t, 4> winners{1, 0, 1, 0};
  for_each_target([&] {
    for (const std::int64_t columns : {4, 2}) {  // as 1 x 4 and 2 x 2
      const PoolShape s{1, 4, {4 / columns, 1, 4 / columns, 1}, {columns, 1, columns, 1}};
      std::vector<T> x(16), g(4, narrow<T>(1.5));
      for (std::size_t c = 0; c < 4; ++c)
        for (std::size_t i = 0; i < 4; ++i) x[i * 4 + c] = narrow<T>(windows[c][i]);
      g[0] = narrow<T>(nan);  // and a NaN in the gradient reaches its winner alone
      const Pooled<T> got = max_pooled(s, x);
      EXPECT_TRUE(std::isnan(widen(got.y[0])));
      EXPECT_EQ(widen(got.y[1]), -inf);
      EXPECT_EQ(widen(got.y[2]), 0);
      EXPECT_TRUE(std::signbit(widen(got.y[2])));
      EXPECT_EQ(widen(got.y[3]), inf);
      std::vector<T> grad(16);
      kernels::max_pool_backward(dtype_v<T>, s, got.raw_winners.data(), g.data(), grad.data());
      for (std::size_t c = 0; c < 4; ++c) {
        EXPECT_EQ(got.winners[c], winners[c]);
        for (std::size_t i = 0; i < 4; ++i) {
          const double v = static_cast<double>(widen(grad[i * 4 + c]));
          if (static_cast<std::int64_t>(i) != winners[c])
            EXPECT_EQ(v, 0);
          else
            EXPECT_TRUE(c == 0 ? std::isnan(v) : v == 1.5);
        }
      }
    }
  });
}

}  // namespace
}  // namespace everyo
