#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/average_pool.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cstddef>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/pool-inl.h"
#include "kernels/pool.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// Terms that one accumulator takes before it is added to the next, so that long sums keep their digits.
constexpr std::int64_t block = 32;

// Sum of rows x columns elements, `down` and `right` apart.
template <class T>
HWY_INLINE WideVec<T> sum_of(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t down, std::int64_t right,
                             std::int64_t lanes) {
  if (rows == 2 && columns == 2)
    return hn::Add(hn::Add(load_channels(x, lanes), load_channels(x + right, lanes)),
                   hn::Add(load_channels(x + down, lanes), load_channels(x + down + right, lanes)));
  const auto zero = hn::Zero(WideTag<T>());
  auto total = zero;
  for (std::int64_t i = 0; i < rows;) {
    auto of_rows = zero;
    for (const std::int64_t end = std::min(i + block, rows); i < end; ++i) {
      for (std::int64_t j = 0; j < columns;) {
        auto of_columns = load_channels(x + i * down + j * right, lanes);
        for (const std::int64_t stop = std::min(j + block, columns); ++j < stop;)
          of_columns = hn::Add(of_columns, load_channels(x + i * down + j * right, lanes));
        of_rows = hn::Add(of_rows, of_columns);
      }
    }
    total = hn::Add(total, of_rows);
  }
  return total;
}

HWY_INLINE std::int64_t divisor(const PoolAxis& axis, std::int64_t o, bool count_padding) {
  return count_padding ? axis.padded_cells(o) : axis.cells(o).count;
}

template <class T>
void forward_rows(const PoolShape& s, bool count_padding, std::int64_t begin, std::int64_t end, const T* x, T* y) {
  const std::int64_t c = s.channels, line = s.width.input * c;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t oh = row % s.height.output;
    const Cells rows = s.height.cells(oh);
    const T* const lines = x + (row / s.height.output * s.height.input + rows.first) * line;
    const std::int64_t high = divisor(s.height, oh, count_padding);
    for (std::int64_t ow = 0; ow < s.width.output; ++ow) {
      const Cells columns = s.width.cells(ow);
      const auto count = hn::Set(WideTag<T>(), static_cast<Wide<T>>(high * divisor(s.width, ow, count_padding)));
      T* const out = y + (row * s.width.output + ow) * c;
      for (std::int64_t k = 0; k < c; k += lanes_of<T>) {
        const std::int64_t lanes = std::min(lanes_of<T>, c - k);
        const auto sum = sum_of(lines + columns.first * c + k, rows.count, columns.count, line, c, lanes);
        store_channels(hn::Div(sum, count), out + k, lanes);
      }
    }
  }
}

// Rows [begin, end) of windows when they tile the image, else of cells.
template <class T>
void backward_rows(const PoolShape& s, bool count_padding, std::int64_t begin, std::int64_t end, const T* grad,
                   T* grad_x) {
  const auto share_of = [&](std::int64_t oh, std::int64_t ow) HWY_ATTR {
    const std::int64_t count = divisor(s.height, oh, count_padding) * divisor(s.width, ow, count_padding);
    return hn::Set(WideTag<T>(), 1 / static_cast<Wide<T>>(count));
  };
  if (s.tiled())
    spread<lanes_of<T>>(
        s, begin, end, grad_x, share_of,
        [&](WideVec<T> share, std::int64_t at, std::int64_t lanes)
            HWY_ATTR { return hn::Mul(load_channels(grad + at, lanes), share); },
        [](WideVec<T> v, std::int64_t, T* to, std::int64_t lanes) HWY_ATTR { store_channels(v, to, lanes); });
  else
    gather(s, begin, end, grad_x,
           [&](std::int64_t oh, std::int64_t ow, std::int64_t at, std::int64_t lanes, std::int64_t)
               HWY_ATTR { return hn::Mul(load_channels(grad + at, lanes), share_of(oh, ow)); });
}

void AveragePool(DType dtype, const PoolShape& s, bool count_padding, std::int64_t begin, std::int64_t end,
                 const void* x, void* y) {
  with_element(dtype, [&]<class T>(T) {
    forward_rows(s, count_padding, begin, end, static_cast<const T*>(x), static_cast<T*>(y));
  });
}
void AveragePoolBackward(DType dtype, const PoolShape& s, bool count_padding, std::int64_t begin, std::int64_t end,
                         const void* grad, void* grad_x) {
  with_element(dtype, [&]<class T>(T) {
    backward_rows(s, count_padding, begin, end, static_cast<const T*>(grad), static_cast<T*>(grad_x));
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {
HWY_EXPORT(AveragePool);
HWY_EXPORT(AveragePoolBackward);
}  // namespace

void average_pool(DType dtype, const PoolShape& shape, bool count_padding, const void* x, void* y) {
  if (shape.channels == 0) return;
  use_isa();
  parallel_for(shape.batch * shape.height.output, shape.forward_grain(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(AveragePool)(dtype, shape, count_padding, begin, end, x, y);
  });
}

void average_pool_backward(DType dtype, const PoolShape& shape, bool count_padding, const void* grad, void* grad_x) {
  if (shape.channels == 0) return;
  use_isa();
  parallel_for(shape.backward_rows(), shape.backward_grain(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(AveragePoolBackward)(dtype, shape, count_padding, begin, end, grad, grad_x);
  });
}

}  // namespace everyo::kernels
#endif
