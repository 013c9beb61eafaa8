// Vectors of float64, from and to float32 and float64.
// Included once per Highway target.
#if defined(EVERYO_KERNELS_DOUBLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_DOUBLE_INL_H_
#undef EVERYO_KERNELS_DOUBLE_INL_H_
#else
#define EVERYO_KERNELS_DOUBLE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Double = hn::ScalableTag<double>;
using Single = hn::Rebind<float, Double>;

HWY_INLINE hn::Vec<Double> load_double(const float* x) { return hn::PromoteTo(Double(), hn::LoadU(Single(), x)); }
HWY_INLINE hn::Vec<Double> load_double(const double* x) { return hn::LoadU(Double(), x); }
HWY_INLINE void store_double(hn::Vec<Double> v, double* to) { hn::StoreU(v, Double(), to); }
HWY_INLINE void store_double(hn::Vec<Double> v, float* to) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // elsewhere Highway may saturate where infinity is right
  hn::StoreU(hn::DemoteTo(Single(), v), Single(), to);
#else
  HWY_ALIGN double values[hn::MaxLanes(Double())];
  hn::Store(v, Double(), values);
  for (std::size_t l = 0; l < hn::Lanes(Double()); ++l) to[l] = static_cast<float>(values[l]);
#endif
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
