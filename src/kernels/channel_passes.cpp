#include "kernels/channel_passes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "everyo/half.h"
#include "kernels/channel_rows.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t block_elements = 65536;  // the least work worth a block of its own
constexpr std::int64_t most_blocks = 256;       // bounds the memory of partial sums
constexpr std::int64_t narrow_channels = 32;    // fewer would leave most of a vector empty

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }
constexpr std::int64_t whole_stretches(std::int64_t rows) noexcept {
  return ceil_div(rows, stretch_rows) * stretch_rows;
}

// How a layout is walked: of few channels, `group` rows side by side count as one, since they lie so in memory. What is
// left over is one shorter row. All is fixed by the layout alone.
struct Cut {
  std::int64_t group = 1, width, rows, tail, block_rows, blocks;

  explicit Cut(const ChannelLayout& layout) {
    const std::int64_t c = layout.channels;
    if (c <= narrow_channels) {
      const std::int64_t whole = 16 / std::gcd<std::int64_t>(c, 16);  // makes the width a multiple of 16
      group = std::min(whole * ceil_div(64, whole * c), std::max<std::int64_t>(1, layout.rows));
    }
    width = group * c;
    rows = layout.rows / group;
    tail = layout.rows % group * c;
    block_rows = whole_stretches(std::max({std::int64_t{1}, block_elements / width, ceil_div(rows, most_blocks)}));
    blocks = std::max<std::int64_t>(1, ceil_div(rows, block_rows));
  }
};

// What a pass needs per column, from what its caller gives per channel.
template <class W>
class Columns {
 public:
  Columns(const ChannelLayout& layout, const Cut& cut, const ChannelMap& map, const ChannelSlopes& slopes)
      : width_(cut.width), values_(layout.samples * cut.width * arrays) {
    for (std::int64_t s = 0; s < layout.samples; ++s) {
      W* const to = values_.data() + s * width_ * arrays;
      for (std::int64_t c = 0; c < layout.channels; ++c) fill(to + c, s * layout.channels + c, map, slopes);
      for (std::int64_t a = 0; a < arrays; ++a)
        for (std::int64_t j = layout.channels; j < width_; ++j)
          to[a * width_ + j] = to[a * width_ + j - layout.channels];
    }
  }
  void set(ChannelRows& pass, std::int64_t sample) const {
    const W* const from = values_.data() + sample * width_ * arrays;
    pass.center = from;
    pass.scale = from + width_;
    pass.shift = from + 2 * width_;
    pass.grad_scale = from + 3 * width_;
    pass.x_scale = from + 4 * width_;
    pass.offset = from + 5 * width_;
  }

 private:
  static constexpr std::int64_t arrays = 6;

  // The mean's digits beyond W's go into what is added at the end.
  void fill(W* to, std::int64_t i, const ChannelMap& map, const ChannelSlopes& slopes) const {
    const auto value = [i](const double* p) { return p ? p[i] : 0; };
    const double mean = value(map.mean), rest = mean - static_cast<double>(static_cast<W>(mean));
    to[0] = static_cast<W>(mean);
    to[width_] = static_cast<W>(value(map.scale));
    to[2 * width_] = static_cast<W>(value(map.shift) - rest * value(map.scale));
    to[3 * width_] = static_cast<W>(value(slopes.grad_scale));
    to[4 * width_] = static_cast<W>(value(slopes.x_scale));
    to[5 * width_] = static_cast<W>(value(slopes.offset) - rest * value(slopes.x_scale));
  }

  std::int64_t width_;
  Scratch<W> values_;
};

// Runs f(pass, sample, block) over all samples and blocks; a sample's last block may have a tail, a second pass.
template <class W, class F>
void run(const ChannelLayout& layout, const Cut& cut, const Columns<W>& columns, std::size_t element, const void* x,
         const void* grad, void* out, F&& f) {
  const std::int64_t tasks = layout.samples * cut.blocks;
  const std::int64_t work = std::min(cut.block_rows, cut.rows + 1) * cut.width;
  parallel_for(tasks, std::max<std::int64_t>(1, block_elements / work), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t sample = task / cut.blocks, block = task % cut.blocks, row = block * cut.block_rows;
      const auto at = static_cast<std::size_t>(sample * layout.rows * layout.channels + row * cut.width);
      const auto from = [&](const void* p, std::size_t i) {
        return p ? static_cast<const std::byte*>(p) + i * element : nullptr;
      };
      ChannelRows pass{};
      pass.rows = std::min(cut.block_rows, cut.rows - row);
      pass.width = cut.width;
      columns.set(pass, sample);
      const auto pass_from = [&](std::size_t i) {
        pass.x = from(x, i);
        pass.grad = from(grad, i);
        pass.out = const_cast<std::byte*>(from(out, i));
        f(pass, task);
      };
      if (pass.rows > 0) pass_from(at);
      if (block + 1 < cut.blocks || cut.tail == 0) continue;
      const auto behind = at + static_cast<std::size_t>(pass.rows * cut.width);
      pass.rows = 1;
      pass.width = cut.tail;
      pass_from(behind);
    }
  });
}

// The same with sums: f adds to pass.sum and pass.product; then all parts of a channel are added up in order.
template <class W, class F>
void run_sums(const ChannelLayout& layout, const Cut& cut, const Columns<W>& columns, std::size_t element,
              const void* x, const void* grad, double* sum, double* product, F&& f) {
  const std::int64_t part = 2 * cut.width, tasks = layout.samples * cut.blocks;
  const Scratch<double> parts(tasks * part);
  std::fill_n(parts.data(), tasks * part, 0.0);
  run(layout, cut, columns, element, x, grad, nullptr, [&](ChannelRows& pass, std::int64_t task) {
    pass.sum = parts.data() + task * part;
    pass.product = product ? pass.sum + cut.width : nullptr;
    f(pass);
  });
  const auto add_up = [&](const double* from, std::int64_t sample, double* to) {
    for (std::int64_t task = sample * cut.blocks; task < (sample + 1) * cut.blocks; ++task)
      for (std::int64_t g = 0; g < cut.group; ++g)
        for (std::int64_t c = 0; c < layout.channels; ++c) to[c] += from[task * part + g * layout.channels + c];
  };
  for (std::int64_t s = 0; s < layout.samples; ++s) {
    add_up(parts.data(), s, sum + s * layout.channels);
    if (product) add_up(parts.data() + cut.width, s, product + s * layout.channels);
  }
}

bool is_empty(const ChannelLayout& layout) { return layout.samples * layout.rows * layout.channels == 0; }

template <class F>
void with_wide(DType dtype, F&& f) {
  if (dtype == float64)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

}  // namespace

void channel_moments(DType dtype, const ChannelLayout& layout, const void* x, double* mean, double* variance) {
  const std::int64_t channels = layout.samples * layout.channels;
  if (is_empty(layout)) return;
  const Scratch<double> origin(channels);
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_v<T>))
      for (std::int64_t i = 0; i < channels; ++i) {
        const std::int64_t s = i / layout.channels, c = i % layout.channels;
        origin.data()[i] = static_cast<double>(widen(static_cast<const T*>(x)[s * layout.rows * layout.channels + c]));
      }
  });
  std::fill_n(mean, channels, 0.0);
  std::fill_n(variance, channels, 0.0);
  with_wide(dtype, [&]<class W>() {
    const Cut cut(layout);
    const Columns<W> columns(layout, cut, {origin.data(), nullptr, nullptr}, {});
    run_sums(layout, cut, columns, size_of(dtype), x, nullptr, mean, variance,
             [dtype](const ChannelRows& pass) { channel_rows_moments(dtype, pass); });
  });
  const auto count = static_cast<double>(layout.rows);
  for (std::int64_t i = 0; i < channels; ++i) {
    const double about = mean[i] / count, spread = variance[i] / count - about * about;
    mean[i] = origin.data()[i] + about;
    variance[i] = spread < 0 ? 0 : spread;  // by a rounding; a NaN stays
  }
}

void channel_apply(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const void* x, void* y) {
  if (is_empty(layout)) return;
  with_wide(dtype, [&]<class W>() {
    const Cut cut(layout);
    const Columns<W> columns(layout, cut, map, {});
    run(layout, cut, columns, size_of(dtype), x, nullptr, y,
        [&](const ChannelRows& pass, std::int64_t) { channel_rows_apply(dtype, map.relu, pass); });
  });
}

void channel_gradient_sums(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const void* x,
                           const void* grad, double* sum, double* product) {
  std::fill_n(sum, layout.samples * layout.channels, 0.0);
  if (product) std::fill_n(product, layout.samples * layout.channels, 0.0);
  if (is_empty(layout)) return;
  with_wide(dtype, [&]<class W>() {
    const Cut cut(layout);
    const Columns<W> columns(layout, cut, map, {});
    run_sums(layout, cut, columns, size_of(dtype), x, grad, sum, product,
             [&](const ChannelRows& pass) { channel_rows_gradient_sums(dtype, map.relu, pass); });
  });
  if (!product) return;
  for (std::int64_t i = 0; i < layout.samples * layout.channels; ++i) {  // the sums above are about W's nearest
    const double mean = map.mean[i];
    product[i] -= sum[i] * (mean - (dtype == float64 ? mean : static_cast<double>(static_cast<float>(mean))));
  }
}

void channel_gradient(DType dtype, const ChannelLayout& layout, const ChannelMap& map, const ChannelSlopes& slopes,
                      const void* x, const void* grad, void* grad_x) {
  if (is_empty(layout)) return;
  with_wide(dtype, [&]<class W>() {
    const Cut cut(layout);
    const Columns<W> columns(layout, cut, map, slopes);
    run(layout, cut, columns, size_of(dtype), x, grad, grad_x, [&](const ChannelRows& pass, std::int64_t) {
      channel_rows_gradient(dtype, map.relu, slopes.x_scale != nullptr, pass);
    });
  });
}

}  // namespace everyo::kernels
