#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/max_pool.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/pool-inl.h"
#include "kernels/pool.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// Winners are counted in the elements' own wide type, so that one mask serves both.
template <class T>
using Whole = hn::Rebind<std::int32_t, WideTag<T>>;
template <class T, class Winner>
using WinnerTag = hn::Rebind<Winner, WideTag<T>>;

template <class T, class Winner>
HWY_INLINE void store_winner(WideVec<T> v, Winner* p, std::int64_t lanes) {
  const Whole<T> whole;
  const auto numbers = [&] {
    if constexpr (std::is_same_v<T, double>)
      return hn::DemoteTo(whole, v);
    else
      return hn::ConvertTo(whole, v);
  }();
  const WinnerTag<T, Winner> d;
  const auto packed = [&] {
    if constexpr (sizeof(Winner) == 1)
      return hn::DemoteTo(d, numbers);
    else
      return numbers;
  }();
  if (lanes >= lanes_of<T>) return hn::StoreU(packed, d, p);
#if HWY_TARGET != HWY_SCALAR
  if (2 * lanes == lanes_of<T>) return hn::StoreU(hn::LowerHalf(packed), hn::Half<decltype(d)>(), p);
#endif
  HWY_ALIGN Winner buffer[hn::MaxLanes(d)];
  hn::StoreU(packed, d, buffer);
  std::memcpy(p, buffer, static_cast<std::size_t>(lanes) * sizeof(Winner));
}

template <class T, class Winner>
HWY_INLINE WideVec<T> load_winner(const Winner* p, std::int64_t lanes) {
  const WinnerTag<T, Winner> d;
  const auto packed = [&] {
    if (lanes >= lanes_of<T>) return hn::LoadU(d, p);
#if HWY_TARGET != HWY_SCALAR
    if (2 * lanes == lanes_of<T>) return hn::ZeroExtendVector(d, hn::LoadU(hn::Half<decltype(d)>(), p));
#endif
    HWY_ALIGN Winner buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, static_cast<std::size_t>(lanes) * sizeof(Winner));
    return hn::LoadU(d, buffer);
  }();
  const auto numbers = [&] {
    if constexpr (sizeof(Winner) == 1)
      return hn::PromoteTo(Whole<T>(), packed);
    else
      return packed;
  }();
  if constexpr (std::is_same_v<T, double>)
    return hn::PromoteTo(WideTag<T>(), numbers);
  else
    return hn::ConvertTo(WideTag<T>(), numbers);
}

template <class T>
struct Best {
  WideVec<T> value, winner;
};
// A greater value, or the first NaN.
template <bool winners, class T>
HWY_INLINE void challenge(Best<T>& best, WideVec<T> v, std::int64_t tap) {
  const WideTag<T> d;
  const auto better = hn::AndNot(hn::IsNaN(best.value), hn::Not(hn::Ge(best.value, v)));
  best.value = hn::IfThenElse(better, v, best.value);
  if constexpr (winners) best.winner = hn::IfThenElse(better, hn::Set(d, static_cast<Wide<T>>(tap)), best.winner);
}

// What is an element already: nothing to round.
template <class T>
HWY_INLINE void store_chosen(WideVec<T> v, T* p, std::int64_t lanes) {
  if constexpr (std::is_same_v<T, BFloat16>)
    if (lanes == lanes_of<T>)
      return hn::StoreU(narrow_words(hn::ShiftRight<16>(hn::BitCast(Words(), v))), HalfWords(), bits_of(p));
  store_channels(v, p, lanes);
}

// Output rows [begin, end) of N * OH. Winner: void for none.
template <class T, class Winner>
void forward_rows(const PoolShape& s, std::int64_t begin, std::int64_t end, const T* x, T* y, Winner* winners) {
  constexpr bool keeps = !std::is_void_v<Winner>;
  const WideTag<T> d;
  const std::int64_t c = s.channels, line = s.width.input * c;
  const std::int64_t down = s.height.dilation * line, right = s.width.dilation * c;
  for (std::int64_t row = begin; row < end; ++row) {
    const Cells rows = s.height.cells(row % s.height.output);
    const T* const lines = x + (row / s.height.output * s.height.input + rows.first) * line;
    for (std::int64_t ow = 0; ow < s.width.output; ++ow) {
      const Cells columns = s.width.cells(ow);
      const T* const corner = lines + columns.first * c;
      const std::int64_t at = (row * s.width.output + ow) * c, first = rows.tap * s.width.window + columns.tap;
      const bool two_by_two = rows.count == 2 && columns.count == 2;
      for (std::int64_t k = 0; k < c; k += lanes_of<T>) {
        const std::int64_t lanes = std::min(lanes_of<T>, c - k);
        const T* const p = corner + k;
        Best<T> best{load_channels(p, lanes), hn::Set(d, static_cast<Wide<T>>(first))};
        if (two_by_two) {
          challenge<keeps>(best, load_channels(p + right, lanes), first + 1);
          challenge<keeps>(best, load_channels(p + down, lanes), first + s.width.window);
          challenge<keeps>(best, load_channels(p + down + right, lanes), first + s.width.window + 1);
        } else {
          for (std::int64_t i = 0; i < rows.count; ++i)
            for (std::int64_t j = i == 0 ? 1 : 0; j < columns.count; ++j)
              challenge<keeps>(best, load_channels(p + i * down + j * right, lanes), first + i * s.width.window + j);
        }
        store_chosen(best.value, y + at + k, lanes);
        if constexpr (keeps) store_winner<T>(best.winner, winners + at + k, lanes);
      }
    }
  }
}

// Halves that are only copied stay what they are: twice as many to a vector.
using Bits = std::uint16_t;
using BitsTag = hn::ScalableTag<Bits>;
constexpr auto bits_lanes = static_cast<std::int64_t>(hn::MaxLanes(BitsTag()));

template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const hn::TFromD<D>* p, std::int64_t lanes) {
  if (lanes == bits_lanes) return hn::LoadU(d, p);
#if HWY_TARGET != HWY_SCALAR
  if (2 * lanes == bits_lanes) return hn::ZeroExtendVector(d, hn::LoadU(hn::Half<D>(), p));
#endif
  if constexpr (has_avx512) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(lanes)), d, p);
  } else {
    HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, static_cast<std::size_t>(lanes) * sizeof(hn::TFromD<D>));
    return hn::Load(d, buffer);
  }
}
HWY_INLINE void store_some(hn::Vec<BitsTag> v, Bits* p, std::int64_t lanes) {
  const BitsTag d;
  if (lanes == bits_lanes) return hn::StoreU(v, d, p);
#if HWY_TARGET != HWY_SCALAR
  if (2 * lanes == bits_lanes) return hn::StoreU(hn::LowerHalf(v), hn::Half<BitsTag>(), p);
#endif
  if constexpr (has_avx512) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(lanes)), d, p);
  } else {
    HWY_ALIGN Bits buffer[hn::MaxLanes(d)];
    hn::Store(v, d, buffer);
    std::memcpy(p, buffer, static_cast<std::size_t>(lanes) * sizeof(Bits));
  }
}

// Gradient of halves where windows tile the image: each cell is one element of grad or 0.
void spread_bits(const PoolShape& s, std::int64_t begin, std::int64_t end, const std::uint8_t* winners,
                 const Bits* grad, Bits* grad_x) {
  const BitsTag d;
  const hn::Rebind<std::uint8_t, BitsTag> bytes;
  struct Winner {
    hn::Vec<BitsTag> grad, winner;
  };
  spread<bits_lanes>(
      s, begin, end, grad_x, [](std::int64_t, std::int64_t) { return 0; },
      [&](int, std::int64_t at, std::int64_t lanes) HWY_ATTR {
        return Winner{load_some(d, grad + at, lanes), hn::PromoteTo(d, load_some(bytes, winners + at, lanes))};
      },
      [&](const Winner& w, std::int64_t tap, Bits* to, std::int64_t lanes) HWY_ATTR {
        store_some(hn::IfThenElseZero(hn::Eq(w.winner, hn::Set(d, static_cast<Bits>(tap))), w.grad), to, lanes);
      });
}

// Rows [begin, end) of windows when they tile the image, else of cells.
template <class T, class Winner>
void backward_rows(const PoolShape& s, std::int64_t begin, std::int64_t end, const Winner* winners, const T* grad,
                   T* grad_x) {
  if constexpr (is_half_element<T> && sizeof(Winner) == 1)
    if (s.tiled()) return spread_bits(s, begin, end, winners, bits_of(grad), bits_of(grad_x));
  const WideTag<T> d;
  const auto won = [&](const Best<T>& g, std::int64_t tap) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(g.winner, hn::Set(d, static_cast<Wide<T>>(tap))), g.value);
  };
  const auto gradient = [&](std::int64_t at, std::int64_t lanes) HWY_ATTR {
    return Best<T>{load_channels(grad + at, lanes), load_winner<T>(winners + at, lanes)};
  };
  if (s.tiled())
    spread<lanes_of<T>>(
        s, begin, end, grad_x, [](std::int64_t, std::int64_t) { return 0; },
        [&](int, std::int64_t at, std::int64_t lanes) HWY_ATTR { return gradient(at, lanes); },
        [&](const Best<T>& g, std::int64_t tap, T* to, std::int64_t lanes)
            HWY_ATTR { store_channels(won(g, tap), to, lanes); });
  else
    gather(s, begin, end, grad_x,
           [&](std::int64_t, std::int64_t, std::int64_t at, std::int64_t lanes, std::int64_t tap)
               HWY_ATTR { return won(gradient(at, lanes), tap); });
}

void MaxPool(DType dtype, const PoolShape& s, std::int64_t begin, std::int64_t end, const void* x, void* y,
             void* winners) {
  with_element(dtype, [&]<class T>(T) {
    const T* const from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(y);
    if (winners == nullptr)
      forward_rows<T, void>(s, begin, end, from, to, nullptr);
    else if (winner_dtype(s.height.window * s.width.window) == uint8)
      forward_rows(s, begin, end, from, to, static_cast<std::uint8_t*>(winners));
    else
      forward_rows(s, begin, end, from, to, static_cast<std::int32_t*>(winners));
  });
}

void MaxPoolBackward(DType dtype, const PoolShape& s, std::int64_t begin, std::int64_t end, const void* winners,
                     const void* grad, void* grad_x) {
  with_element(dtype, [&]<class T>(T) {
    const T* const g = static_cast<const T*>(grad);
    T* const to = static_cast<T*>(grad_x);
    if (winner_dtype(s.height.window * s.width.window) == uint8)
      backward_rows(s, begin, end, static_cast<const std::uint8_t*>(winners), g, to);
    else
      backward_rows(s, begin, end, static_cast<const std::int32_t*>(winners), g, to);
  });
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {
HWY_EXPORT(MaxPool);
HWY_EXPORT(MaxPoolBackward);
}  // namespace

void max_pool(DType dtype, const PoolShape& shape, const void* x, void* y, void* winners) {
  if (shape.channels == 0) return;
  use_isa();
  parallel_for(shape.batch * shape.height.output, shape.forward_grain(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(MaxPool)(dtype, shape, begin, end, x, y, winners);
  });
}

void max_pool_backward(DType dtype, const PoolShape& shape, const void* winners, const void* grad, void* grad_x) {
  if (shape.channels == 0) return;
  use_isa();
  parallel_for(shape.backward_rows(), shape.backward_grain(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(MaxPoolBackward)(dtype, shape, begin, end, winners, grad, grad_x);
  });
}

}  // namespace everyo::kernels
#endif
