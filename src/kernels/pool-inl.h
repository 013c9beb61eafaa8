// What the pools share: whole and partial vectors of channels, and the two ways of a gradient from windows to cells.
// Included once per Highway target.
#if defined(EVERYO_KERNELS_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_POOL_INL_H_
#undef EVERYO_KERNELS_POOL_INL_H_
#else
#define EVERYO_KERNELS_POOL_INL_H_
#endif

#include <algorithm>

#include "kernels/pool.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

template <class T>
inline constexpr std::int64_t lanes_of = static_cast<std::int64_t>(hn::MaxLanes(WideTag<T>()));

/// The `lanes` elements from x on, zeros behind them.
template <class T>
HWY_INLINE WideVec<T> load_channels(const T* x, std::int64_t lanes) {
  return lanes == lanes_of<T> ? load(x) : load_part(x, static_cast<std::size_t>(lanes));
}
template <class T>
HWY_INLINE void store_channels(WideVec<T> v, T* x, std::int64_t lanes) {
  if (lanes == lanes_of<T>)
    store(v, x);
  else
    store_part(v, x, static_cast<std::size_t>(lanes));
}

/// f of a value of the element type.
template <class F>
HWY_INLINE void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f(double{});
    case DType::float16: return f(Float16{});
    case DType::bfloat16: return f(BFloat16{});
    default: return f(float{});
  }
}

/// Gradient where no cell lies in two windows: rows [begin, end) of the N * OH of windows, and the cells that belong to
/// them, `step` channels at a time. With w = of_window(oh, ow) and v = value(w, at, lanes) for its output at index `at`
/// of y, put(v, tap, cell, lanes) writes the share of the window's cell of number `tap`.
template <std::int64_t step, class T, class OfWindow, class Value, class Put>
HWY_INLINE void spread(const PoolShape& s, std::int64_t begin, std::int64_t end, T* grad_x, const OfWindow& of_window,
                       const Value& value, const Put& put) {
  const std::int64_t c = s.channels, line = s.width.input * c;
  const Cells last_column = s.width.cells(s.width.output - 1);
  const std::int64_t columns_used = last_column.first + last_column.count;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t oh = row % s.height.output;
    const Cells rows = s.height.cells(oh);
    T* const image = grad_x + row / s.height.output * s.height.input * line;
    for (std::int64_t ow = 0; ow < s.width.output; ++ow) {
      const Cells columns = s.width.cells(ow);
      T* const corner = image + rows.first * line + columns.first * c;
      const auto window = of_window(oh, ow);
      const std::int64_t at = (row * s.width.output + ow) * c;
      // Rows [i, i_end) and columns [j, j_end) of the window.
      const auto fill = [&](std::int64_t i, std::int64_t i_end, std::int64_t j, std::int64_t j_end) HWY_ATTR {
        for (std::int64_t k = 0; k < c; k += step) {
          const std::int64_t lanes = std::min(step, c - k);
          const auto v = value(window, at + k, lanes);
          for (std::int64_t r = i; r < i_end; ++r)
            for (std::int64_t q = j; q < j_end; ++q)
              put(v, r * s.width.window + q, corner + r * line + q * c + k, lanes);
        }
      };
      if (rows.count * columns.count <= 16) {
        fill(0, rows.count, 0, columns.count);
        continue;
      }
      for (std::int64_t i = 0; i < rows.count; ++i)  // cell by cell, as the memory lies
        for (std::int64_t j = 0; j < columns.count; ++j) fill(i, i + 1, j, j + 1);
    }
    // Cells behind the last window.
    for (std::int64_t i = 0; i < rows.count; ++i)
      std::fill_n(image + (rows.first + i) * line + columns_used * c, (s.width.input - columns_used) * c, T{});
    const std::int64_t below = rows.first + rows.count;
    if (oh == s.height.output - 1) std::fill_n(image + below * line, (s.height.input - below) * line, T{});
  }
}

/// Gradient of any pool: rows [begin, end) of the N * H of cells, each the sum over the windows that see it, in their
/// order, of term(oh, ow, at, lanes, tap).
template <class T, class Term>
HWY_INLINE void gather(const PoolShape& s, std::int64_t begin, std::int64_t end, T* grad_x, const Term& term) {
  const std::int64_t c = s.channels;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t n = row / s.height.input, h = row % s.height.input;
    const Windows rows = s.height.windows(h);
    for (std::int64_t w = 0; w < s.width.input; ++w) {
      const Windows columns = s.width.windows(w);
      T* const cell = grad_x + (row * s.width.input + w) * c;
      for (std::int64_t k = 0; k < c; k += lanes_of<T>) {
        const std::int64_t lanes = std::min(lanes_of<T>, c - k);
        auto sum = hn::Zero(WideTag<T>());
        for (std::int64_t oh = rows.first; oh <= rows.last; ++oh) {
          const std::int64_t tap_row = s.height.tap_of(h, oh);
          if (tap_row < 0) continue;
          for (std::int64_t ow = columns.first; ow <= columns.last; ++ow) {
            const std::int64_t tap_column = s.width.tap_of(w, ow);
            if (tap_column < 0) continue;
            const std::int64_t at = ((n * s.height.output + oh) * s.width.output + ow) * c + k;
            sum = hn::Add(sum, term(oh, ow, at, lanes, tap_row * s.width.window + tap_column));
          }
        }
        store_channels(sum, cell + k, lanes);
      }
    }
  }
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
