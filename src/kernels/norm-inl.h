// Vectors as the norms' kernels take them: whole or part, and the ReLU behind a norm. Included once per Highway target.
#if defined(EVERYO_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_NORM_INL_H_
#undef EVERYO_KERNELS_NORM_INL_H_
#else
#define EVERYO_KERNELS_NORM_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

template <class T>
inline constexpr std::int64_t lanes_of = static_cast<std::int64_t>(hn::MaxLanes(WideTag<T>()));
/// In place of a count of columns: a whole vector.
struct Whole {};
template <class T>
HWY_INLINE WideVec<T> load_lanes(const T* p, Whole) {
  return load(p);
}
template <class T>
HWY_INLINE WideVec<T> load_lanes(const T* p, std::int64_t count) {
  return load_part(p, static_cast<std::size_t>(count % lanes_of<T>));
}
template <class T>
HWY_INLINE void store_lanes(WideVec<T> v, T* p, Whole) {
  store(v, p);
}
template <class T>
HWY_INLINE void store_lanes(WideVec<T> v, T* p, std::int64_t count) {
  store_part(v, p, static_cast<std::size_t>(count % lanes_of<T>));
}

/// Values up to this one are 0 in T: what ReLU then sees.
template <class T>
constexpr Wide<T> rounds_to_zero() {
  if constexpr (std::is_same_v<T, Float16>) return 0x1p-25f;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-134f;
  return 0;
}

/// ReLU of what is then rounded: a value that becomes -0 stays one, and a NaN.
template <class T>
HWY_INLINE WideVec<T> cut(WideVec<T> y) {
  return hn::IfThenZeroElse(hn::Lt(y, hn::Set(WideTag<T>(), -rounds_to_zero<T>())), y);
}
/// What of the gradient comes through the ReLU that stored y.
template <class T>
HWY_INLINE WideVec<T> uncut(WideVec<T> grad, WideVec<T> y) {
  return hn::IfThenZeroElse(hn::Le(y, hn::Set(WideTag<T>(), rounds_to_zero<T>())), grad);
}

template <class F>
HWY_INLINE void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f.template operator()<double>();
    case DType::float16: return f.template operator()<Float16>();
    case DType::bfloat16: return f.template operator()<BFloat16>();
    default: return f.template operator()<float>();
  }
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
