// Pieces of softmax that its op and cross-entropy share: rows of K float32-computed elements. Included once per
// Highway target.
#if defined(EVERYO_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_SOFTMAX_INL_H_
#undef EVERYO_KERNELS_SOFTMAX_INL_H_
#else
#define EVERYO_KERNELS_SOFTMAX_INL_H_
#endif

#include "kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

inline constexpr std::int64_t float_lanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
/// Vectors that one accumulator takes before it is added to the total, so that long sums keep their digits.
inline constexpr std::int64_t block_vectors = 32;

/// The first `count` lanes of v, `filler` in the others.
HWY_INLINE VF first_lanes(VF v, std::int64_t count, float filler) {
  return hn::IfThenElse(hn::FirstN(F32(), static_cast<std::size_t>(count)), v, constant(filler));
}

/// Greatest of x[0..count); a NaN may be passed over (it shows in the sum that follows).
template <class T>
HWY_INLINE float row_max(const T* x, std::int64_t count) {
  const float lowest = -__builtin_inff();
  VF greatest = constant(lowest);
  std::int64_t i = 0;
  for (; i + float_lanes <= count; i += float_lanes) greatest = hn::Max(greatest, load(x + i));
  if (i < count)
    greatest = hn::Max(greatest, first_lanes(load_part(x + i, static_cast<std::size_t>(count - i)), count - i, lowest));
  return hn::GetLane(hn::MaxOfLanes(F32(), greatest));
}

/// Sum over k of term(k, lanes): `lanes` is the vector's width, or fewer in the last, where the other lanes must be 0.
template <class Term>
HWY_INLINE float row_sum(std::int64_t count, const Term& term) {
  VF total = hn::Zero(F32());
  std::int64_t k = 0;
  while (k + float_lanes <= count) {
    VF block = hn::Zero(F32());
    for (std::int64_t v = 0; v < block_vectors && k + float_lanes <= count; ++v, k += float_lanes)
      block = hn::Add(block, term(k, float_lanes));
    total = hn::Add(total, block);
  }
  if (k < count) total = hn::Add(total, term(k, count - k));
  return hn::GetLane(hn::SumOfLanes(F32(), total));
}

/// The `lanes` elements from x on, zeros behind them.
template <class T>
HWY_INLINE VF load_lanes(const T* x, std::int64_t lanes) {
  return lanes == float_lanes ? load(x) : load_part(x, static_cast<std::size_t>(lanes));
}
template <class T>
HWY_INLINE void store_lanes(VF v, T* x, std::int64_t lanes) {
  if (lanes == float_lanes)
    store(v, x);
  else
    store_part(v, x, static_cast<std::size_t>(lanes));
}

/// e^x for x <= 0, in fewer steps than exp: what would be subnormal (x < -87) is 0. A NaN stays.
HWY_INLINE VF exp_nonpositive(VF x) {
  const VF lowest = constant(-87.0f);
  const auto vanishes = hn::Lt(x, lowest);
  // A NaN goes through as the lowest: it has no place among the integers.
  const VF limited = hn::IfThenElse(hn::Gt(x, lowest), x, lowest);
  const VF n = hn::Round(hn::Mul(limited, constant(1.44269504f)));
  VF r = hn::NegMulAdd(n, constant(0.693359375f), limited);  // 9 bits of ln 2: n times it is exact
  r = hn::NegMulAdd(n, constant(-2.12194440e-4f), r);
  constexpr float c[] = {5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f,
                         8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f};
  const VF p = hn::Add(hn::MulAdd(hn::Mul(r, r), polynomial(r, c), r), constant(1.0f));
  const VF result = hn::Mul(p, power_of_two(hn::ConvertTo(I32(), n)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(vanishes, result));
}

/// e^(x - shift) for the `lanes` elements from x on, none above shift; 0 behind them.
template <class T>
HWY_INLINE VF shifted_exp(const T* x, VF shift, std::int64_t lanes) {
  const VF e = exp_nonpositive(hn::Sub(load_lanes(x, lanes), shift));
  return lanes == float_lanes ? e : first_lanes(e, lanes, 0);
}

/// Natural logarithm of one value, by the vector code.
HWY_INLINE float log_of(float x) { return hn::GetLane(log(constant(x))); }

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
