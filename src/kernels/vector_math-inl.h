// Elementary functions of float32 vectors. Largest errors over all of float32, measured by the tests: exp 1, log 1,
// tanh 2, sigmoid 2 units in the last place. Included once per Highway target.
#if defined(EVERYO_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVERYO_KERNELS_VECTOR_MATH_INL_H_
#undef EVERYO_KERNELS_VECTOR_MATH_INL_H_
#else
#define EVERYO_KERNELS_VECTOR_MATH_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
using I32 = hn::RebindToSigned<F32>;

HWY_INLINE VF constant(float value) { return hn::Set(F32(), value); }

/// x within [low, high]; a NaN stays, on every target.
HWY_INLINE VF clamp(VF x, VF low, VF high) {
  return hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x));
}

/// coefficients[0] + coefficients[1] x + …, by Horner's rule.
template <std::size_t count>
HWY_INLINE VF polynomial(VF x, const float (&coefficients)[count]) {
  VF sum = constant(coefficients[count - 1]);
  for (std::size_t i = count - 1; i-- > 0;) sum = hn::MulAdd(sum, x, constant(coefficients[i]));
  return sum;
}

/// 2^k for -126 <= k <= 127.
template <class V>
HWY_INLINE VF power_of_two(V k) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(k, hn::Set(I32(), 127))));
}

/// e^x: 0 from -104 down through the subnormals, infinity from 88.73 up. Polynomial of Cephes' expf.
HWY_INLINE VF exp(VF x) {
  // A NaN goes through as -104: it has no place among the integers.
  const VF low = constant(-104.0f), high = constant(89.0f);
  const VF limited = hn::IfThenElse(hn::Gt(x, low), hn::IfThenElse(hn::Gt(x, high), high, x), low);
  const VF n = hn::Round(hn::Mul(limited, constant(1.44269504f)));
  VF r = hn::NegMulAdd(n, constant(0.693359375f), limited);  // 9 bits of ln 2: n times it is exact
  r = hn::NegMulAdd(n, constant(-2.12194440e-4f), r);
  constexpr float c[] = {5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f,
                         8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f};
  const VF p = hn::Add(hn::MulAdd(hn::Mul(r, r), polynomial(r, c), r), constant(1.0f));
  // In two factors: the result may be subnormal, where the second product rounds once.
  const auto k = hn::ConvertTo(I32(), n);
  const auto half = hn::ShiftRight<1>(k);
  const VF result = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(k, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

/// Natural logarithm: -infinity at 0, NaN below. Polynomial of Cephes' logf.
HWY_INLINE VF log(VF x) {
  const auto tiny = hn::Lt(x, constant(0x1p-126f));
  const VF scaled = hn::IfThenElse(tiny, hn::Mul(x, constant(0x1p25f)), x);
  const auto bits = hn::BitCast(Words(), scaled);
  // The mantissa in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2).
  const auto offset = hn::Sub(bits, hn::Set(Words(), 0x3f3504f3u));
  const auto exponent = hn::ShiftRight<23>(hn::BitCast(I32(), offset));
  const VF m = hn::BitCast(F32(), hn::Sub(bits, hn::ShiftLeft<23>(hn::BitCast(Words(), exponent))));
  const VF e = hn::Sub(hn::ConvertTo(F32(), exponent), hn::IfThenElseZero(tiny, constant(25.0f)));
  const VF f = hn::Sub(m, constant(1.0f)), square = hn::Mul(f, f);
  constexpr float c[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,  -1.6668057665e-1f, 1.4249322787e-1f,
                         -1.2420140846e-1f, 1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
  VF rest = hn::Mul(hn::Mul(f, square), polynomial(f, c));
  rest = hn::MulAdd(e, constant(-2.12194440e-4f), rest);
  rest = hn::NegMulAdd(square, constant(0.5f), rest);
  VF result = hn::MulAdd(e, constant(0.693359375f), hn::Add(f, rest));
  const VF infinity = constant(__builtin_inff());
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(F32())), hn::Neg(infinity), result);
  return hn::IfThenElse(hn::Or(hn::Lt(x, hn::Zero(F32())), hn::IsNaN(x)), constant(__builtin_nanf("")), result);
}

/// Polynomial of Cephes' tanhf near 0, where the other form cancels.
HWY_INLINE VF tanh(VF x) {
  const VF magnitude = hn::Abs(x), square = hn::Mul(x, x);
  constexpr float c[] = {-3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f,
                         -5.70498872745e-3f};
  const VF near = hn::MulAdd(hn::Mul(x, square), polynomial(square, c), x);
  const VF e = exp(hn::Add(magnitude, magnitude));
  const VF far = hn::Sub(constant(1.0f), hn::Div(constant(2.0f), hn::Add(e, constant(1.0f))));
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, constant(0.625f)), near, far), x);
}

/// 1 / (1 + e^-x), by e^-|x| so that nothing overflows and the lower tail keeps its digits.
HWY_INLINE VF sigmoid(VF x) {
  const VF e = exp(hn::Neg(hn::Abs(x)));
  const VF part = hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), e, constant(1.0f));
  return hn::Div(part, hn::Add(constant(1.0f), e));
}

/// The normal distribution's density at x and mass below x, for |x| <= 15 (beyond, the mass is 0 or 1).
struct Normal {
  VF density, mass;
};
HWY_INLINE Normal normal(VF x) {
  const VF a = hn::Abs(x);
  const VF e = exp(hn::Mul(hn::Mul(a, a), constant(-0.5f)));
  // Mass above a, divided by e, as a polynomial in t = 1 / (1 + 0.3 a): least squares of the relative error at 400
  // Chebyshev nodes of [0, 15]; 4e-9.
  const VF t = hn::Div(constant(1.0f), hn::MulAdd(a, constant(0.3f), constant(1.0f)));
  constexpr float c[] = {0x1.ea3d32p-4f,  0x1.e9b7d2p-4f, 0x1.c3f100p-4f,  0x1.3f112ep-4f, 0x1.8fddf4p-4f,
                         -0x1.50c976p-4f, 0x1.8fce9ap-3f, -0x1.d8bd94p-3f, 0x1.d12798p-4f, -0x1.555544p-6f};
  const VF above = hn::Mul(hn::Mul(e, t), polynomial(t, c));
  const VF mass = hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), above, hn::Sub(constant(1.0f), above));
  return {hn::Mul(e, constant(0.3989422804f)), mass};
}

}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
