#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include "hwy/highway.h"

#include "everyo/half.h"
#include "kernels/fold.h"
#include "kernels/isa.h"

#include <cstddef>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Wide = hn::ScalableTag<double>;
using Vector = hn::Vec<Wide>;
constexpr Wide wide;
constexpr std::int64_t width = static_cast<std::int64_t>(hn::MaxLanes(wide));
// A row has this many logical accumulators whatever the vectors' width, so every instruction set sums in one order.
constexpr std::int64_t row_lanes = 32;

template <class T>
HWY_INLINE Vector load_wide(const T* x) {
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(wide, x);
  } else {
    const hn::Rebind<float, Wide> single;
    if constexpr (std::is_same_v<T, float>) {
      return hn::PromoteTo(wide, hn::LoadU(single, x));
    } else if constexpr (std::is_same_v<T, Float16>) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
      const hn::Rebind<hwy::float16_t, Wide> half;
      return hn::PromoteTo(wide, hn::PromoteTo(single, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(x))));
#else  // elsewhere the promotion takes infinities and NaN for numbers
      HWY_ALIGN float values[width];
      for (std::int64_t l = 0; l < width; ++l) values[l] = to_float(x[l]);
      return hn::PromoteTo(wide, hn::Load(single, values));
#endif
    } else {  // a bfloat16 is a float32's upper half
      const hn::Rebind<std::uint16_t, Wide> bits16;
      const hn::Rebind<std::uint32_t, Wide> bits32;
      const auto bits = hn::LoadU(bits16, reinterpret_cast<const std::uint16_t*>(x));
      return hn::PromoteTo(wide, hn::BitCast(single, hn::ShiftLeft<16>(hn::PromoteTo(bits32, bits))));
    }
  }
}

template <Fold fold>
HWY_INLINE Vector combine(Vector acc, Vector x) {
  if constexpr (fold == Fold::sum) {
    return hn::Add(acc, x);
  } else {
    const auto better = fold == Fold::max ? hn::Gt(x, acc) : hn::Lt(x, acc);
    return hn::IfThenElse(hn::Or(better, hn::IsNaN(x)), x, acc);
  }
}
template <Fold fold>
HWY_INLINE double combine(double acc, double x) {
  if constexpr (fold == Fold::sum)
    return acc + x;
  else if constexpr (fold == Fold::max)
    return x > acc || x != x ? x : acc;
  else
    return x < acc || x != x ? x : acc;
}

template <Fold fold>
constexpr double start() {
  if constexpr (fold == Fold::sum) return 0;
  const double infinity = std::numeric_limits<double>::infinity();
  return fold == Fold::max ? -infinity : infinity;
}

template <Fold fold, class T>
HWY_INLINE double fold_row(const T* x, std::int64_t count) {
  if (count < row_lanes) {
    double acc = start<fold>();
    for (std::int64_t i = 0; i < count; ++i) acc = combine<fold>(acc, static_cast<double>(widen(x[i])));
    return acc;
  }
  constexpr std::int64_t vectors = row_lanes / width;
  Vector acc[vectors];
  for (auto& a : acc) a = hn::Set(wide, start<fold>());
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes)
    for (std::int64_t v = 0; v < vectors; ++v) acc[v] = combine<fold>(acc[v], load_wide(x + i + v * width));
  if (i < count) {
    HWY_ALIGN double tail[row_lanes];
    for (std::int64_t l = 0; l < row_lanes; ++l)
      tail[l] = i + l < count ? static_cast<double>(widen(x[i + l])) : start<fold>();
    for (std::int64_t v = 0; v < vectors; ++v) acc[v] = combine<fold>(acc[v], hn::Load(wide, tail + v * width));
  }
  for (std::int64_t half = vectors / 2; half > 0; half /= 2)
    for (std::int64_t v = 0; v < half; ++v) acc[v] = combine<fold>(acc[v], acc[v + half]);
  HWY_ALIGN double lanes[width];
  hn::Store(acc[0], wide, lanes);
  for (std::int64_t half = width / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lanes[l] = combine<fold>(lanes[l], lanes[l + half]);
  return lanes[0];
}

// `vectors` accumulators in registers while the rows stream by.
template <Fold fold, std::int64_t vectors, class T>
HWY_INLINE void fold_tile(const T* x, std::int64_t rows, std::int64_t row_stride, double* acc) {
  Vector sum[vectors];
  for (std::int64_t v = 0; v < vectors; ++v) sum[v] = hn::LoadU(wide, acc + v * width);
  for (std::int64_t r = 0; r < rows; ++r, x += row_stride)
    for (std::int64_t v = 0; v < vectors; ++v) sum[v] = combine<fold>(sum[v], load_wide(x + v * width));
  for (std::int64_t v = 0; v < vectors; ++v) hn::StoreU(sum[v], wide, acc + v * width);
}

template <Fold fold, class T>
void columns_of(const T* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count, double* acc) {
  std::int64_t j = 0;
  for (; j + 8 * width <= count; j += 8 * width) fold_tile<fold, 8>(x + j, rows, row_stride, acc + j);
  if (j + 4 * width <= count) fold_tile<fold, 4>(x + j, rows, row_stride, acc + j), j += 4 * width;
  if (j + 2 * width <= count) fold_tile<fold, 2>(x + j, rows, row_stride, acc + j), j += 2 * width;
  if (j + width <= count) fold_tile<fold, 1>(x + j, rows, row_stride, acc + j), j += width;
  for (; j < count; ++j)
    for (std::int64_t r = 0; r < rows; ++r)
      acc[j] = combine<fold>(acc[j], static_cast<double>(widen(x[r * row_stride + j])));
}

template <Fold fold, class T>
void rows_of(const T* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count, double* acc) {
  for (std::int64_t r = 0; r < rows; ++r) acc[r] = combine<fold>(acc[r], fold_row<fold>(x + r * row_stride, count));
}

template <class F>
HWY_INLINE void with_type(DType dtype, const void* x, F&& f) {
  switch (dtype) {
    case DType::float64: return f(static_cast<const double*>(x));
    case DType::float16: return f(static_cast<const Float16*>(x));
    case DType::bfloat16: return f(static_cast<const BFloat16*>(x));
    default: return f(static_cast<const float*>(x));
  }
}

void FoldRows(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
              double* acc) {
  with_type(dtype, x, [&](const auto* p) {
    switch (fold) {
      case Fold::sum: return rows_of<Fold::sum>(p, rows, row_stride, count, acc);
      case Fold::max: return rows_of<Fold::max>(p, rows, row_stride, count, acc);
      case Fold::min: return rows_of<Fold::min>(p, rows, row_stride, count, acc);
    }
  });
}

void FoldColumns(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
                 double* acc) {
  with_type(dtype, x, [&](const auto* p) {
    switch (fold) {
      case Fold::sum: return columns_of<Fold::sum>(p, rows, row_stride, count, acc);
      case Fold::max: return columns_of<Fold::max>(p, rows, row_stride, count, acc);
      case Fold::min: return columns_of<Fold::min>(p, rows, row_stride, count, acc);
    }
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {
HWY_EXPORT(FoldRows);
HWY_EXPORT(FoldColumns);
}  // namespace

double fold_start(Fold fold) noexcept {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return fold == Fold::sum ? 0 : fold == Fold::max ? -infinity : infinity;
}

void fold_rows(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
               double* acc) noexcept {
  use_isa();
  HWY_DYNAMIC_DISPATCH(FoldRows)(fold, dtype, x, rows, row_stride, count, acc);
}

void fold_columns(Fold fold, DType dtype, const void* x, std::int64_t rows, std::int64_t row_stride, std::int64_t count,
                  double* acc) noexcept {
  use_isa();
  HWY_DYNAMIC_DISPATCH(FoldColumns)(fold, dtype, x, rows, row_stride, count, acc);
}

}  // namespace everyo::kernels
#endif
