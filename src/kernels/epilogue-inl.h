// What happens to an element of a product between its sum and its place in C. Included once per Highway target.
#if defined(EVERYO_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_EPILOGUE_INL_H_
#undef EVERYO_KERNELS_EPILOGUE_INL_H_
#else
#define EVERYO_KERNELS_EPILOGUE_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

/// The first `count` elements, at most a vector's; zeros in the other lanes.
template <class T>
HWY_INLINE WideVec<T> load_first(const T* p, std::size_t count) {
  return count >= hn::Lanes(WideTag<T>()) ? load(p) : load_part(p, count);
}
template <class T>
HWY_INLINE void store_first(WideVec<T> v, T* p, std::size_t count) {
  if (count >= hn::Lanes(WideTag<T>()))
    store(v, p);
  else
    store_part(v, p, count);
}

/// `count` sums added to C, or with bias and relu applied, each step rounded as an op of its own would; the last one is
/// rounded by the store.
template <class T>
HWY_INLINE WideVec<T> finished(WideVec<T> sum, const T* to, std::size_t count, bool accumulate, const T* bias,
                               bool relu) {
  if (accumulate) sum = hn::Add(load_first(to, count), round_to<T>(sum));
  if (bias) sum = hn::Add(round_to<T>(sum), load_first(bias, count));
  if (relu) sum = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(WideTag<T>())), sum);  // keeps NaN
  return sum;
}
template <class T>
HWY_INLINE void store_product(WideVec<T> sum, T* to, std::size_t count, bool accumulate, const T* bias, bool relu) {
  store_first(finished(sum, to, count, accumulate, bias, relu), to, count);
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
