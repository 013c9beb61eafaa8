// A loop over elements by whole vectors of float. Included once per Highway target.
#if defined(EVERYO_KERNELS_EACH_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_EACH_VECTOR_INL_H_
#undef EVERYO_KERNELS_EACH_VECTOR_INL_H_
#else
#define EVERYO_KERNELS_EACH_VECTOR_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

/// Calls body(at, load, store) for whole vectors of float, then once for a partial one: the same code for both, so an
/// element's bits do not depend on its place.
template <class Body>
HWY_INLINE void each_vector(std::size_t n, Body&& body) {
  const std::size_t lanes = hn::Lanes(WideTag<float>());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    body(
        i, [](const auto* p) HWY_ATTR { return load(p); }, [](auto v, auto* p) HWY_ATTR { store(v, p); });
  if (i < n)
    body(
        i, [n, i](const auto* p) HWY_ATTR { return load_part(p, n - i); },
        [n, i](auto v, auto* p) HWY_ATTR { store_part(v, p, n - i); });
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
