#include "kernels/binary_runs.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "everyo/half.h"

namespace everyo::kernels {
namespace {

template <class T, class Out, class Op, Repeated repeated>
void run(const void* a_data, const void* b_data, void* out_data, std::size_t count) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  Out* out = static_cast<Out*>(out_data);
  if constexpr (repeated == Repeated::none) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op()(widen(a[i]), widen(b[i]));
  } else if constexpr (repeated == Repeated::first) {
    const auto same = widen(a[0]);
    for (std::size_t i = 0; i < count; ++i) out[i] = Op()(same, widen(b[i]));
  } else {
    const auto same = widen(b[0]);
    for (std::size_t i = 0; i < count; ++i) out[i] = Op()(widen(a[i]), same);
  }
}
template <class T, class Out, class Op>
BinaryRun run_of(Repeated repeated) {
  if (repeated == Repeated::first) return run<T, Out, Op, Repeated::first>;
  if (repeated == Repeated::second) return run<T, Out, Op, Repeated::second>;
  return run<T, Out, Op, Repeated::none>;
}

// Arithmetic modulo 2^bits: without a sign, where overflow is defined; 64 bits hold a product of 32.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};

template <class T>
void select_elements(const void* condition_data, const void* a_data, const void* b_data, void* out_data,
                     std::size_t count, unsigned repeated) {
  const bool* condition = static_cast<const bool*>(condition_data);
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  T* out = static_cast<T*>(out_data);
  const std::size_t step_c = (repeated & 1u) == 0 ? 1 : 0, step_a = (repeated & 2u) == 0 ? 1 : 0,
                    step_b = (repeated & 4u) == 0 ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T yes = a[i * step_a], no = b[i * step_b];
    out[i] = condition[i * step_c] ? yes : no;
  }
}

}  // namespace

BinaryRun integer_run(Binary op, DType dtype, Repeated repeated) {
  return visit_dtype(dtype, [&]<class T>() -> BinaryRun {
    if constexpr (std::is_same_v<T, bool>) {
      if (op == Binary::add || op == Binary::maximum) return run_of<bool, bool, Maximum>(repeated);
      if (op == Binary::multiply || op == Binary::minimum) return run_of<bool, bool, Minimum>(repeated);
    } else if constexpr (std::is_integral_v<T>) {
      switch (op) {
        case Binary::add: return run_of<T, T, Add>(repeated);
        case Binary::subtract: return run_of<T, T, Subtract>(repeated);
        case Binary::multiply: return run_of<T, T, Multiply>(repeated);
        case Binary::maximum: return run_of<T, T, Maximum>(repeated);
        case Binary::minimum: return run_of<T, T, Minimum>(repeated);
        case Binary::divide: break;
      }
    }
    return nullptr;
  });
}

BinaryRun comparison_run(Comparison op, DType dtype, Repeated repeated) {
  return visit_dtype(dtype, [&]<class T>() -> BinaryRun {
    switch (op) {
      case Comparison::equal: return run_of<T, bool, std::equal_to<>>(repeated);
      case Comparison::not_equal: return run_of<T, bool, std::not_equal_to<>>(repeated);
      case Comparison::less: return run_of<T, bool, std::less<>>(repeated);
      case Comparison::less_equal: break;
    }
    return run_of<T, bool, std::less_equal<>>(repeated);
  });
}

TernaryRun select_run(std::size_t element_size) {
  switch (element_size) {
    case 1: return select_elements<std::uint8_t>;
    case 2: return select_elements<std::uint16_t>;
    case 4: return select_elements<std::uint32_t>;
    default: return select_elements<std::uint64_t>;
  }
}

}  // namespace everyo::kernels
