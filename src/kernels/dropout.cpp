#include "kernels/dropout.h"

#include <algorithm>
#include <cstddef>

#include "base/philox.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

/// bits[count] = draws 4 * block … of the key, and up to the next full vectors.
void draw(DropoutKey key, std::uint64_t block, std::uint32_t* bits, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < count; i += 4) {
    const philox::Block four = philox::draws(key.key, key.stream, block + i / 4);
    std::copy(four.begin(), four.end(), bits + i);
  }
#else
  // philox::philox4x32, one counter a 64-bit lane.
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> words;
  const auto low = hn::Set(d, 0xffffffffu);
  const auto times = [&](auto a, std::uint32_t b)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(words, a), hn::Set(words, b)); };
  for (std::size_t i = 0; i < count; i += 4 * hn::Lanes(d)) {
    const auto counter = hn::Iota(d, block + i / 4);
    auto c0 = hn::And(counter, low), c1 = hn::ShiftRight<32>(counter);
    auto c2 = hn::Set(d, philox::low_word(key.stream)), c3 = hn::Set(d, philox::high_word(key.stream));
    std::uint32_t k0 = philox::low_word(key.key), k1 = philox::high_word(key.key);
    for (int round = 0; round < 10; ++round) {
      const auto a = times(c0, 0xD2511F53u), b = times(c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::ShiftRight<32>(b), hn::Xor(c1, hn::Set(d, k0)));
      c1 = hn::And(b, low);
      c2 = hn::Xor(hn::ShiftRight<32>(a), hn::Xor(c3, hn::Set(d, k1)));
      c3 = hn::And(a, low);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // Little-endian: the lower word of a lane lies first.
    hn::StoreInterleaved2(hn::Or(c0, hn::ShiftLeft<32>(c1)), hn::Or(c2, hn::ShiftLeft<32>(c3)), d,
                          reinterpret_cast<std::uint64_t*>(bits + i));
  }
#endif
}

template <class T>
void drop(const T* x, T* y, std::size_t n, const std::uint32_t* bits, std::uint32_t threshold, double scale) {
  if constexpr (std::is_same_v<T, double>) {
    for (std::size_t i = 0; i < n; ++i) y[i] = bits[i] >= threshold ? x[i] * scale : 0.0;
  } else {
    const WideTag<T> d;
    const auto least = hn::Set(Words(), threshold);
    const auto factor = hn::Set(d, static_cast<float>(scale));
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t i = 0; i < n; i += lanes) {
      const auto dropped = hn::RebindMask(d, hn::Lt(hn::LoadU(Words(), bits + i), least));
      if (n - i >= lanes) {
        store(hn::IfThenZeroElse(dropped, hn::Mul(load(x + i), factor)), y + i);
      } else {
        store_part(hn::IfThenZeroElse(dropped, hn::Mul(load_part(x + i, n - i), factor)), y + i, n - i);
      }
    }
  }
}

template <class T>
void dropout_elements(const T* x, T* y, std::size_t first, std::size_t n, DropoutKey key, std::uint32_t threshold,
                      double scale) {
  HWY_ALIGN std::uint32_t bits[piece];  // drawn at once; a multiple of a vector's
  for (std::size_t i = 0; i < n; i += piece) {
    const std::size_t count = std::min(piece, n - i);
    draw(key, (first + i) / 4, bits, count);
    drop(x + i, y + i, count, bits, threshold, scale);
  }
}

/// Elements from `first` on, a multiple of 4; x and y point at it.
void vector_dropout(DType dtype, const void* x, void* y, std::size_t first, std::size_t n, DropoutKey key,
                    std::uint32_t threshold, double scale) {
  const auto run = [&]<class T>() {
    dropout_elements(static_cast<const T*>(x), static_cast<T*>(y), first, n, key, threshold, scale);
  };
  switch (dtype) {
    case float64: return run.template operator()<double>();
    case float16: return run.template operator()<Float16>();
    case bfloat16: return run.template operator()<BFloat16>();
    default: return run.template operator()<float>();
  }
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {

HWY_EXPORT(vector_dropout);

constexpr std::int64_t grain = std::int64_t{1} << 13;  // a multiple of 4: blocks of draws are not split

}  // namespace

void dropout(DType dtype, const void* x, void* y, std::int64_t n, DropoutKey key, double p) {
  use_isa();
  const auto threshold = static_cast<std::uint32_t>(std::min(p * 0x1p32, 0x1p32 - 1));
  const double scale = 1 / (1 - p);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(vector_dropout)
    (dtype, static_cast<const std::byte*>(x) + begin * size, static_cast<std::byte*>(y) + begin * size,
     static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin), key, threshold, scale);
  });
}

}  // namespace everyo::kernels
#endif
