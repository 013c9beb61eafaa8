#include "kernels/binary.h"

#include "kernels/binary_runs.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/binary.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

struct Add {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Subtract {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Sub(a, b);
  }
};
struct Multiply {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct Divide {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Div(a, b);
  }
};
// The first NaN wins on every target, and of zeros the first.
struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::And(hn::IsNaN(b), hn::Eq(a, a))), b, a);
  }
};
struct Minimum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::And(hn::IsNaN(b), hn::Eq(a, a))), b, a);
  }
};

template <class T>
HWY_INLINE WideVec<T> splat(const T* p) {
  const Wide<T> value = hn::GetLane(load_part(p, 1));
  return hn::Set(WideTag<T>(), value);
}

template <class T, class Op, Repeated repeated>
void run(const void* a_data, const void* b_data, void* out_data, std::size_t count) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  T* out = static_cast<T*>(out_data);
  const std::size_t lanes = hn::Lanes(WideTag<T>());
  const Op op;
  std::size_t i = 0;
  if constexpr (repeated == Repeated::none) {
    for (; i + lanes <= count; i += lanes) store(op(load(a + i), load(b + i)), out + i);
    if (i < count) store_part(op(load_part(a + i, count - i), load_part(b + i, count - i)), out + i, count - i);
  } else if constexpr (repeated == Repeated::first) {
    const auto same = splat(a);
    for (; i + lanes <= count; i += lanes) store(op(same, load(b + i)), out + i);
    if (i < count) store_part(op(same, load_part(b + i, count - i)), out + i, count - i);
  } else {
    const auto same = splat(b);
    for (; i + lanes <= count; i += lanes) store(op(load(a + i), same), out + i);
    if (i < count) store_part(op(load_part(a + i, count - i), same), out + i, count - i);
  }
}

template <class T, class Op, Repeated repeated>
void half_run(const void* a_data, const void* b_data, void* out_data, std::size_t count) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  T* out = static_cast<T*>(out_data);
  HWY_ALIGN float wide_a[piece];
  HWY_ALIGN float wide_b[piece];
  if constexpr (repeated == Repeated::first) copy_elements(a, wide_a, 1);
  if constexpr (repeated == Repeated::second) copy_elements(b, wide_b, 1);
  for (std::size_t i = 0; i < count; i += piece) {
    const std::size_t n = count - i < piece ? count - i : piece;
    if constexpr (repeated != Repeated::first) copy_elements(a + i, wide_a, n);
    if constexpr (repeated != Repeated::second) copy_elements(b + i, wide_b, n);
    HWY_ALIGN float wide_out[piece];
    run<float, Op, repeated>(wide_a, wide_b, wide_out, n);
    copy_elements(wide_out, out + i, n);
  }
}

template <class T, class Op, Repeated repeated>
constexpr BinaryRun run_for() {
  if constexpr (is_half(dtype_v<T>)) {
    return half_run<T, Op, repeated>;
  } else {
    return run<T, Op, repeated>;
  }
}
template <class T, class Op>
BinaryRun run_of(Repeated repeated) {
  if (repeated == Repeated::first) return run_for<T, Op, Repeated::first>();
  if (repeated == Repeated::second) return run_for<T, Op, Repeated::second>();
  return run_for<T, Op, Repeated::none>();
}
template <class T>
BinaryRun run_of(Binary op, Repeated repeated) {
  switch (op) {
    case Binary::add: return run_of<T, Add>(repeated);
    case Binary::subtract: return run_of<T, Subtract>(repeated);
    case Binary::multiply: return run_of<T, Multiply>(repeated);
    case Binary::divide: return run_of<T, Divide>(repeated);
    case Binary::maximum: return run_of<T, Maximum>(repeated);
    case Binary::minimum: break;
  }
  return run_of<T, Minimum>(repeated);
}

struct DivisorGradient {
  template <class V>
  HWY_INLINE V operator()(V g, V y, V b) const {
    return hn::Neg(hn::Mul(hn::Div(g, b), y));
  }
};
struct LargerGradient {
  template <class V>
  HWY_INLINE V operator()(V g, V a, V b) const {
    const hn::DFromV<V> d;
    const V part = hn::IfThenElseZero(hn::Eq(a, b), hn::Mul(g, hn::Set(d, hn::TFromD<hn::DFromV<V>>(0.5))));
    return hn::IfThenElse(hn::Gt(a, b), g, part);
  }
};
struct SmallerGradient {
  template <class V>
  HWY_INLINE V operator()(V g, V a, V b) const {
    return LargerGradient()(g, b, a);
  }
};

template <class T>
HWY_INLINE WideVec<T> load_some(const T* p, std::size_t count, bool same) {
  if (same) return splat(p);
  return count >= hn::Lanes(WideTag<T>()) ? load(p) : load_part(p, count);
}
template <class T, class Op>
void ternary_run(const void* a_data, const void* b_data, const void* c_data, void* out_data, std::size_t count,
                 unsigned repeated) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data), *c = static_cast<const T*>(c_data);
  T* out = static_cast<T*>(out_data);
  const bool same_a = (repeated & 1u) != 0, same_b = (repeated & 2u) != 0, same_c = (repeated & 4u) != 0;
  const std::size_t lanes = hn::Lanes(WideTag<T>());
  for (std::size_t i = 0; i < count; i += lanes) {
    const std::size_t left = count - i;
    const auto value =
        Op()(load_some(a + (same_a ? 0 : i), left, same_a), load_some(b + (same_b ? 0 : i), left, same_b),
             load_some(c + (same_c ? 0 : i), left, same_c));
    if (left >= lanes) {
      store(value, out + i);
    } else {
      store_part(value, out + i, left);
    }
  }
}
template <class T, class Op>
void half_ternary_run(const void* a, const void* b, const void* c, void* out, std::size_t count, unsigned repeated) {
  HWY_ALIGN float wide[3][piece];
  for (std::size_t i = 0; i < count; i += piece) {
    const std::size_t n = count - i < piece ? count - i : piece;
    unsigned k = 0;
    for (const void* in : {a, b, c}) {
      const bool same = (repeated >> k & 1u) != 0;
      copy_elements(static_cast<const T*>(in) + (same ? 0 : i), wide[k++], same ? 1 : n);
    }
    HWY_ALIGN float wide_out[piece];
    ternary_run<float, Op>(wide[0], wide[1], wide[2], wide_out, n, repeated);
    copy_elements(wide_out, static_cast<T*>(out) + i, n);
  }
}
template <class T, class Op>
constexpr TernaryRun ternary_run_for() {
  if constexpr (is_half(dtype_v<T>)) {
    return half_ternary_run<T, Op>;
  } else {
    return ternary_run<T, Op>;
  }
}
template <class T>
TernaryRun run_of(Ternary op) {
  if (op == Ternary::divisor_gradient) return ternary_run_for<T, DivisorGradient>();
  if (op == Ternary::larger_gradient) return ternary_run_for<T, LargerGradient>();
  return ternary_run_for<T, SmallerGradient>();
}

BinaryRun vector_run(Binary op, DType dtype, Repeated repeated) {
  switch (dtype) {
    case float64: return run_of<double>(op, repeated);
    case float16: return run_of<Float16>(op, repeated);
    case bfloat16: return run_of<BFloat16>(op, repeated);
    default: return run_of<float>(op, repeated);
  }
}
TernaryRun vector_ternary_run(Ternary op, DType dtype) {
  switch (dtype) {
    case float64: return run_of<double>(op);
    case float16: return run_of<Float16>(op);
    case bfloat16: return run_of<BFloat16>(op);
    default: return run_of<float>(op);
  }
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(vector_run);
HWY_EXPORT(vector_ternary_run);

constexpr std::int64_t grain = std::int64_t{1} << 15;

const std::byte* at(const void* data, std::int64_t element, std::size_t size) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(element) * size;
}

Repeated repeated_in(const BroadcastPlan<2>& plan) {
  return plan.repeats_inside(0) ? Repeated::first : plan.repeats_inside(1) ? Repeated::second : Repeated::none;
}

void run_all(const BroadcastPlan<2>& plan, BinaryRun run, std::size_t in_size, const void* a, const void* b,
             std::size_t out_size, void* out) {
  parallel_for(plan.elements, grain, [&](std::int64_t begin, std::int64_t end) {
    for_each_run(plan, begin, end, [&](const auto& offsets, std::int64_t first, std::int64_t count) {
      run(at(a, offsets[0], in_size), at(b, offsets[1], in_size),
          static_cast<std::byte*>(out) + static_cast<std::size_t>(first) * out_size, static_cast<std::size_t>(count));
    });
  });
}

void run_all(const BroadcastPlan<3>& plan, TernaryRun run, std::array<const void*, 3> in,
             std::array<std::size_t, 3> in_size, std::size_t out_size, void* out) {
  unsigned repeated = 0;
  for (unsigned k = 0; k < 3; ++k) repeated |= plan.repeats_inside(k) ? 1u << k : 0u;
  parallel_for(plan.elements, grain, [&](std::int64_t begin, std::int64_t end) {
    for_each_run(plan, begin, end, [&](const auto& offsets, std::int64_t first, std::int64_t count) {
      run(at(in[0], offsets[0], in_size[0]), at(in[1], offsets[1], in_size[1]), at(in[2], offsets[2], in_size[2]),
          static_cast<std::byte*>(out) + static_cast<std::size_t>(first) * out_size, static_cast<std::size_t>(count),
          repeated);
    });
  });
}

}  // namespace

void binary(Binary op, DType dtype, const BroadcastPlan<2>& plan, const void* a, const void* b, void* out) {
  use_isa();
  const Repeated repeated = repeated_in(plan);
  const BinaryRun run =
      is_floating(dtype) ? HWY_DYNAMIC_DISPATCH(vector_run)(op, dtype, repeated) : integer_run(op, dtype, repeated);
  if (run != nullptr) run_all(plan, run, size_of(dtype), a, b, size_of(dtype), out);
}

void binary(Binary op, DType dtype, std::int64_t n, const void* a, const void* b, void* out) {
  use_isa();
  const BinaryRun run = is_floating(dtype) ? HWY_DYNAMIC_DISPATCH(vector_run)(op, dtype, Repeated::none)
                                           : integer_run(op, dtype, Repeated::none);
  if (run == nullptr) return;
  const std::size_t size = size_of(dtype);
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    run(at(a, begin, size), at(b, begin, size), static_cast<std::byte*>(out) + static_cast<std::size_t>(begin) * size,
        static_cast<std::size_t>(end - begin));
  });
}

void compare(Comparison op, DType dtype, const BroadcastPlan<2>& plan, const void* a, const void* b, bool* out) {
  run_all(plan, comparison_run(op, dtype, repeated_in(plan)), size_of(dtype), a, b, sizeof(bool), out);
}

void ternary(Ternary op, DType dtype, const BroadcastPlan<3>& plan, const void* a, const void* b, const void* c,
             void* out) {
  use_isa();
  const std::size_t size = size_of(dtype);
  run_all(plan, HWY_DYNAMIC_DISPATCH(vector_ternary_run)(op, dtype), {a, b, c}, {size, size, size}, size, out);
}

void select(std::size_t element_size, const BroadcastPlan<3>& plan, const bool* condition, const void* a, const void* b,
            void* out) {
  run_all(plan, select_run(element_size), {condition, a, b}, {sizeof(bool), element_size, element_size}, element_size,
          out);
}

}  // namespace everyo::kernels
#endif
