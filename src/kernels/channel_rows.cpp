#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/channel_rows.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cstddef>

#include "everyo/half.h"
#include "kernels/channel_rows.h"
#include "kernels/isa.h"
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t tile_vectors = 4;  // accumulators in registers while a stretch streams by

// f<vectors>(first column, number of columns, Whole or the number) over all columns.
template <class T, class F>
HWY_INLINE void for_each_tile(std::int64_t width, F&& f) {
  constexpr std::int64_t lanes = lanes_of<T>, tile = tile_vectors * lanes;
  std::int64_t j = 0;
  for (; j + tile <= width; j += tile) f.template operator()<tile_vectors>(j, tile, Whole());
  for (; j + lanes <= width; j += lanes) f.template operator()<1>(j, lanes, Whole());
  if (j < width) f.template operator()<1>(j, width - j, width - j);
}

// ---- sums -----------------------------------------------------------------------------------------------------------

// Sums of x - first and of its square, where first is the stretch's own first row.
template <class T, std::int64_t vectors, class Count>
HWY_INLINE void moments_of_tile(const T* x, std::int64_t rows, std::int64_t width, Count count, Wide<T>* first,
                                Wide<T>* sum, Wide<T>* square) {
  const WideTag<T> d;
  constexpr std::int64_t lanes = lanes_of<T>;
  WideVec<T> f[vectors], s[vectors], q[vectors];
  for (std::int64_t v = 0; v < vectors; ++v) {
    f[v] = load_lanes(x + v * lanes, count);
    s[v] = q[v] = hn::Zero(d);
  }
  for (std::int64_t r = 1; r < rows; ++r) {
    x += width;
    for (std::int64_t v = 0; v < vectors; ++v) {
      const auto difference = hn::Sub(load_lanes(x + v * lanes, count), f[v]);
      s[v] = hn::Add(s[v], difference);
      q[v] = hn::MulAdd(difference, difference, q[v]);
    }
  }
  for (std::int64_t v = 0; v < vectors; ++v) {
    hn::Store(f[v], d, first + v * lanes);
    hn::Store(s[v], d, sum + v * lanes);
    hn::Store(q[v], d, square + v * lanes);
  }
}

template <class T>
void moments_typed(const ChannelRows& pass) {
  constexpr std::int64_t tile = tile_vectors * lanes_of<T>;
  const auto* center = static_cast<const Wide<T>*>(pass.center);
  HWY_ALIGN Wide<T> first[tile], sum[tile], square[tile];
  for (std::int64_t r = 0; r < pass.rows; r += stretch_rows) {
    const std::int64_t rows = std::min(stretch_rows, pass.rows - r);
    const T* x = static_cast<const T*>(pass.x) + r * pass.width;
    for_each_tile<T>(pass.width, [&]<std::int64_t vectors>(std::int64_t j, std::int64_t columns, auto count) HWY_ATTR {
      moments_of_tile<T, vectors>(x + j, rows, pass.width, count, first, sum, square);
      for (std::int64_t k = 0; k < columns; ++k) {
        const double about = static_cast<double>(first[k]) - static_cast<double>(center[j + k]);
        const double s = static_cast<double>(sum[k]), shifted = static_cast<double>(rows) * about;
        pass.sum[j + k] += s + shifted;
        pass.product[j + k] += static_cast<double>(square[k]) + about * (2 * s + shifted);
      }
    });
  }
}

template <class T, bool relu, bool with_x, std::int64_t vectors, class Count>
HWY_INLINE void gradient_sums_of_tile(const ChannelRows& pass, std::int64_t at, std::int64_t rows, std::int64_t j,
                                      Count count, Wide<T>* sum, Wide<T>* product) {
  using W = Wide<T>;
  const WideTag<T> d;
  constexpr std::int64_t lanes = lanes_of<T>;
  const T *x = static_cast<const T*>(pass.x) + (with_x ? at : 0), *grad = static_cast<const T*>(pass.grad) + at;
  WideVec<T> center[vectors], scale[vectors], shift[vectors], s[vectors], p[vectors];
  for (std::int64_t v = 0; v < vectors; ++v) {
    s[v] = p[v] = center[v] = scale[v] = shift[v] = hn::Zero(d);
    if constexpr (with_x) center[v] = load_lanes(static_cast<const W*>(pass.center) + j + v * lanes, count);
    if constexpr (relu) {
      scale[v] = load_lanes(static_cast<const W*>(pass.scale) + j + v * lanes, count);
      shift[v] = load_lanes(static_cast<const W*>(pass.shift) + j + v * lanes, count);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r, x += with_x ? pass.width : 0, grad += pass.width) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      auto g = load_lanes(grad + v * lanes, count);
      if constexpr (with_x) {
        const auto centered = hn::Sub(load_lanes(x + v * lanes, count), center[v]);
        if constexpr (relu) g = uncut<T>(g, hn::MulAdd(centered, scale[v], shift[v]));
        p[v] = hn::MulAdd(g, centered, p[v]);
      }
      s[v] = hn::Add(s[v], g);
    }
  }
  for (std::int64_t v = 0; v < vectors; ++v) {
    hn::Store(s[v], d, sum + v * lanes);
    hn::Store(p[v], d, product + v * lanes);
  }
}

template <class T, bool relu, bool with_x>
void gradient_sums_typed(const ChannelRows& pass) {
  constexpr std::int64_t tile = tile_vectors * lanes_of<T>;
  HWY_ALIGN Wide<T> sum[tile], product[tile];
  for (std::int64_t r = 0; r < pass.rows; r += stretch_rows) {
    const std::int64_t rows = std::min(stretch_rows, pass.rows - r);
    for_each_tile<T>(pass.width, [&]<std::int64_t vectors>(std::int64_t j, std::int64_t columns, auto count) HWY_ATTR {
      gradient_sums_of_tile<T, relu, with_x, vectors>(pass, r * pass.width + j, rows, j, count, sum, product);
      for (std::int64_t k = 0; k < columns; ++k) {
        pass.sum[j + k] += static_cast<double>(sum[k]);
        if constexpr (with_x) pass.product[j + k] += static_cast<double>(product[k]);
      }
    });
  }
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

// f(first column, Whole or number of columns, index of the element) over all rows and columns.
template <class T, class F>
HWY_INLINE void for_each_vector(const ChannelRows& pass, F&& f) {
  constexpr std::int64_t lanes = lanes_of<T>;
  for (std::int64_t r = 0, row = 0; r < pass.rows; ++r, row += pass.width) {
    std::int64_t j = 0;
    for (; j + lanes <= pass.width; j += lanes) f(j, Whole(), row + j);
    if (j < pass.width) f(j, pass.width - j, row + j);
  }
}

template <class T, bool relu>
void apply_typed(const ChannelRows& pass) {
  using W = Wide<T>;
  const auto *center = static_cast<const W*>(pass.center), *scale = static_cast<const W*>(pass.scale),
             *shift = static_cast<const W*>(pass.shift);
  const T* x = static_cast<const T*>(pass.x);
  T* out = static_cast<T*>(pass.out);
  for_each_vector<T>(pass, [=](std::int64_t j, auto count, std::int64_t i) HWY_ATTR {
    const auto centered = hn::Sub(load_lanes(x + i, count), load_lanes(center + j, count));
    auto y = hn::MulAdd(centered, load_lanes(scale + j, count), load_lanes(shift + j, count));
    if constexpr (relu) y = cut<T>(y);
    store_lanes(y, out + i, count);
  });
}

template <class T, bool relu, bool with_x>
void gradient_typed(const ChannelRows& pass) {
  using W = Wide<T>;
  const auto *center = static_cast<const W*>(pass.center), *scale = static_cast<const W*>(pass.scale),
             *shift = static_cast<const W*>(pass.shift), *grad_scale = static_cast<const W*>(pass.grad_scale),
             *x_scale = static_cast<const W*>(pass.x_scale), *offset = static_cast<const W*>(pass.offset);
  const T *x = static_cast<const T*>(pass.x), *grad = static_cast<const T*>(pass.grad);
  T* out = static_cast<T*>(pass.out);
  for_each_vector<T>(pass, [=](std::int64_t j, auto count, std::int64_t i) HWY_ATTR {
    auto g = load_lanes(grad + i, count), centered = g;
    if constexpr (relu || with_x) centered = hn::Sub(load_lanes(x + i, count), load_lanes(center + j, count));
    if constexpr (relu)
      g = uncut<T>(g, hn::MulAdd(centered, load_lanes(scale + j, count), load_lanes(shift + j, count)));
    const auto slope = load_lanes(grad_scale + j, count);
    if constexpr (with_x)
      store_lanes(
          hn::MulAdd(slope, g, hn::MulAdd(load_lanes(x_scale + j, count), centered, load_lanes(offset + j, count))),
          out + i, count);
    else
      store_lanes(hn::Mul(slope, g), out + i, count);
  });
}

void ChannelMoments(DType dtype, const ChannelRows& pass) {
  with_type(dtype, [&]<class T>() { moments_typed<T>(pass); });
}
void ChannelApply(DType dtype, bool relu, const ChannelRows& pass) {
  with_type(dtype, [&]<class T>() { relu ? apply_typed<T, true>(pass) : apply_typed<T, false>(pass); });
}
void ChannelGradientSums(DType dtype, bool relu, bool with_x, const ChannelRows& pass) {
  with_type(dtype, [&]<class T>() {
    if (relu) return gradient_sums_typed<T, true, true>(pass);
    return with_x ? gradient_sums_typed<T, false, true>(pass) : gradient_sums_typed<T, false, false>(pass);
  });
}
void ChannelGradient(DType dtype, bool relu, bool with_x, const ChannelRows& pass) {
  with_type(dtype, [&]<class T>() {
    if (relu) return with_x ? gradient_typed<T, true, true>(pass) : gradient_typed<T, true, false>(pass);
    return with_x ? gradient_typed<T, false, true>(pass) : gradient_typed<T, false, false>(pass);
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {
HWY_EXPORT(ChannelMoments);
HWY_EXPORT(ChannelApply);
HWY_EXPORT(ChannelGradientSums);
HWY_EXPORT(ChannelGradient);
}  // namespace

void channel_rows_moments(DType dtype, const ChannelRows& pass) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ChannelMoments)(dtype, pass);
}
void channel_rows_apply(DType dtype, bool relu, const ChannelRows& pass) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ChannelApply)(dtype, relu, pass);
}
void channel_rows_gradient_sums(DType dtype, bool relu, const ChannelRows& pass) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ChannelGradientSums)(dtype, relu, pass.product != nullptr, pass);
}
void channel_rows_gradient(DType dtype, bool relu, bool with_x, const ChannelRows& pass) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ChannelGradient)(dtype, relu, with_x, pass);
}

}  // namespace everyo::kernels
#endif
