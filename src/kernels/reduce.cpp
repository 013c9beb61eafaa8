#include "kernels/reduce.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <span>

#include "everyo/half.h"
#include "kernels/parallel.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t block_elements = 32768;  // the least work worth a block of its own
constexpr std::int64_t tile_outputs = 256;      // accumulators of one tile, on the stack
constexpr std::int64_t split_parts = 16;        // most pieces a single output's sum is cut into
constexpr std::int64_t split_outputs = 512;     // with more outputs they alone give enough blocks

constexpr Fold fold_of(ReduceKind kind) noexcept {
  return kind == ReduceKind::max ? Fold::max : kind == ReduceKind::min ? Fold::min : Fold::sum;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// Offset of the index-th position of a walk over `runs`, the last run fastest.
std::int64_t offset_of(std::span<const Run> runs, std::int64_t index) noexcept {
  std::int64_t offset = 0;
  for (std::size_t i = runs.size(); i-- > 0;) {
    offset += index % runs[i].size * runs[i].stride;
    index /= runs[i].size;
  }
  return offset;
}

template <Fold fold>
std::int64_t combine(std::int64_t acc, std::int64_t x) noexcept {
  if constexpr (fold == Fold::sum)  // sums wrap, as NumPy's do
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(acc) + static_cast<std::uint64_t>(x));
  else if constexpr (fold == Fold::max)
    return std::max(acc, x);
  else
    return std::min(acc, x);
}

// How floating elements are folded: double accumulators, vector code.
struct FloatingFolder {
  using Acc = double;
  Fold fold;
  DType dtype;
  std::size_t element = size_of(dtype);

  const void* at(const void* x, std::int64_t offset) const noexcept {
    return static_cast<const std::byte*>(x) + static_cast<std::size_t>(offset) * element;
  }
  double start() const noexcept { return fold_start(fold); }
  double merge(double acc, double x) const noexcept {
    fold_columns(fold, float64, &x, 1, 1, 1, &acc);
    return acc;
  }
  void rows(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t count, double* acc) const noexcept {
    fold_rows(fold, dtype, x, rows, stride, count, acc);
  }
  void columns(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t count, double* acc) const noexcept {
    fold_columns(fold, dtype, x, rows, stride, count, acc);
  }
};

// Integers and booleans: int64 accumulators, plain loops (their order does not matter).
template <class T, Fold fold>
struct IntegerFolder {
  using Acc = std::int64_t;

  static const void* at(const void* x, std::int64_t offset) noexcept { return static_cast<const T*>(x) + offset; }
  static constexpr std::int64_t start() noexcept {
    return fold == Fold::sum   ? 0
           : fold == Fold::max ? std::numeric_limits<std::int64_t>::min()
                               : std::numeric_limits<std::int64_t>::max();
  }
  static std::int64_t merge(std::int64_t acc, std::int64_t x) noexcept { return combine<fold>(acc, x); }
  static void rows(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t count,
                   std::int64_t* acc) noexcept {
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      std::int64_t a = acc[r];
      for (std::int64_t i = 0; i < count; ++i) a = combine<fold>(a, static_cast<std::int64_t>(row[i]));
      acc[r] = a;
    }
  }
  static void columns(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t count,
                      std::int64_t* acc) noexcept {
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      for (std::int64_t j = 0; j < count; ++j) acc[j] = combine<fold>(acc[j], static_cast<std::int64_t>(row[j]));
    }
  }
};

// Walks one layout with one folder. `store(output, acc)` receives each output once.
template <class Folder, class Store>
class Reducer {
 public:
  Reducer(const ReduceLayout& layout, const Folder& folder, const Store& store, const void* x)
      : layout_(layout), folder_(folder), store_(store), x_(x) {}

  void run() const {
    // A part of an output is a range of units: elements of the one reduced run, or steps of the outer reduced runs.
    const std::int64_t inner = inner_columns();
    const std::int64_t groups = layout_.outputs / inner;
    if (layout_.outputs <= split_outputs && layout_.outputs * layout_.elements > 2 * block_elements && units() > 1)
      return run_split(groups, inner);
    if (layout_.inner_reduced) {
      const std::int64_t grain =
          std::max<std::int64_t>(1, block_elements / std::max<std::int64_t>(1, layout_.elements));
      parallel_for(layout_.outputs, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t o = begin; o < end; o += tile_outputs) fold_outputs(o, std::min(end, o + tile_outputs));
      });
      return;
    }
    const std::int64_t tiles = ceil_div(inner, tile_outputs),
                       tile_work = std::min(inner, tile_outputs) * layout_.elements;
    const std::int64_t grain = std::max<std::int64_t>(1, block_elements / std::max<std::int64_t>(1, tile_work));
    parallel_for(groups * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t group = t / tiles, first = t % tiles * tile_outputs;
        const std::int64_t count = std::min(tile_outputs, inner - first);
        Acc acc[tile_outputs];
        std::fill_n(acc, count, folder_.start());
        fold_columns_of(group, first, count, 0, units(), acc);
        for (std::int64_t j = 0; j < count; ++j) store_(group * inner + first + j, acc[j]);
      }
    });
  }

 private:
  using Acc = typename Folder::Acc;

  std::span<const Run> kept() const { return {layout_.kept.data(), static_cast<std::size_t>(layout_.kept_runs)}; }
  std::span<const Run> reduced() const {
    return {layout_.reduced.data(), static_cast<std::size_t>(layout_.reduced_runs)};
  }
  std::int64_t inner_columns() const { return layout_.inner_reduced || kept().empty() ? 1 : kept().back().size; }
  std::int64_t row_length() const { return reduced().empty() ? 1 : reduced().back().size; }
  std::int64_t row_stride() const { return reduced().empty() ? 0 : reduced().back().stride; }
  bool single_run() const { return layout_.reduced_runs <= 1; }
  std::int64_t units() const { return single_run() ? row_length() : layout_.elements / row_length(); }

  // Outputs [begin, end), at most a tile, each of whole rows.
  void fold_outputs(std::int64_t begin, std::int64_t end) const {
    Acc acc[tile_outputs];
    std::fill_n(acc, end - begin, folder_.start());
    const std::int64_t line = kept().empty() ? 1 : kept().back().size,
                       stride = kept().empty() ? 0 : kept().back().stride;
    const std::int64_t outer = layout_.elements / row_length();
    for (std::int64_t o = begin; o < end;) {
      const std::int64_t count = std::min(end - o, line - o % line);  // these lie one stride apart
      const std::int64_t base = offset_of(kept(), o);
      for (std::int64_t u = 0; u < outer; ++u)
        folder_.rows(folder_.at(x_, base + offset_of(outer_reduced(), u)), count, stride, row_length(),
                     acc + (o - begin));
      o += count;
    }
    for (std::int64_t o = begin; o < end; ++o) store_(o, acc[o - begin]);
  }

  // Units [begin, end) of one output made of rows.
  void fold_part_of(std::int64_t output, std::int64_t begin, std::int64_t end, Acc* acc) const {
    const std::int64_t base = offset_of(kept(), output);
    if (single_run()) return folder_.rows(folder_.at(x_, base + begin), 1, 0, end - begin, acc);
    for (std::int64_t u = begin; u < end; ++u)
      folder_.rows(folder_.at(x_, base + offset_of(outer_reduced(), u)), 1, 0, row_length(), acc);
  }

  // Units [begin, end) of `count` neighbouring columns.
  void fold_columns_of(std::int64_t group, std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end,
                       Acc* acc) const {
    const auto outer_kept = kept().empty() ? kept() : kept().first(kept().size() - 1);
    const std::int64_t base = offset_of(outer_kept, group) + first;
    if (single_run())
      return folder_.columns(folder_.at(x_, base + begin * row_stride()), end - begin, row_stride(), count, acc);
    for (std::int64_t u = begin; u < end; ++u)
      folder_.columns(folder_.at(x_, base + offset_of(outer_reduced(), u)), row_length(), row_stride(), count, acc);
  }

  std::span<const Run> outer_reduced() const {
    return reduced().empty() ? reduced() : reduced().first(reduced().size() - 1);
  }

  // Few outputs of much work each: parts of fixed size side by side, merged in order.
  void run_split(std::int64_t groups, std::int64_t inner) const {
    const std::int64_t unit_work = std::max<std::int64_t>(1, layout_.elements / units()) * inner;
    const std::int64_t least = std::max(ceil_div(block_elements, unit_work), ceil_div(units(), split_parts));
    const std::int64_t part = layout_.inner_reduced && single_run() ? ceil_div(least, 64) * 64 : least;
    const std::int64_t parts = ceil_div(units(), part);
    Acc partial[split_parts * split_outputs];
    const std::int64_t outputs = groups * inner;
    std::fill_n(partial, parts * outputs, folder_.start());
    parallel_for(groups * parts, 1, [&](std::int64_t first_task, std::int64_t last_task) {
      for (std::int64_t t = first_task; t < last_task; ++t) {
        const std::int64_t group = t / parts, p = t % parts, begin = p * part, end = std::min(units(), begin + part);
        Acc* acc = partial + p * outputs + group * inner;
        std::fill_n(acc, inner, folder_.start());
        if (layout_.inner_reduced)
          fold_part_of(group, begin, end, acc);
        else
          fold_columns_of(group, 0, inner, begin, end, acc);
      }
    });
    for (std::int64_t o = 0; o < outputs; ++o) {
      Acc acc = partial[o];
      for (std::int64_t p = 1; p < parts; ++p) acc = folder_.merge(acc, partial[p * outputs + o]);
      store_(o, acc);
    }
  }

  const ReduceLayout& layout_;
  const Folder& folder_;
  const Store& store_;
  const void* x_;
};

template <class T>
void reduce_floating(ReduceKind kind, const ReduceLayout& layout, DType dtype, const void* x, T* out) {
  const FloatingFolder folder{.fold = fold_of(kind), .dtype = dtype};
  const double count = kind == ReduceKind::mean ? static_cast<double>(layout.elements) : 1;
  const auto store = [=](std::int64_t o, double acc) { out[o] = narrow<T>(acc / count); };
  Reducer(layout, folder, store, x).run();
}

template <class T, Fold fold>
void reduce_integers(const ReduceLayout& layout, const T* x, void* out) {
  using Out = std::conditional_t<fold == Fold::sum, std::int64_t, T>;
  const auto store = [out](std::int64_t o, std::int64_t acc) { static_cast<Out*>(out)[o] = static_cast<Out>(acc); };
  const IntegerFolder<T, fold> folder;
  Reducer(layout, folder, store, x).run();
}

template <class T>
void argmax_of(const T* x, std::int64_t outer, std::int64_t count, std::int64_t inner, std::int64_t* out) {
  const std::int64_t grain = std::max<std::int64_t>(1, block_elements / std::max<std::int64_t>(1, count * inner));
  parallel_for(outer, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      for (std::int64_t j = 0; j < inner; ++j) {
        const T* line = x + o * count * inner + j;
        auto best = widen(line[0]);
        std::int64_t index = 0;
        for (std::int64_t k = 1; k < count && best == best; ++k) {  // a NaN ends the search
          const auto value = widen(line[k * inner]);
          if (value > best || value != value) best = value, index = k;
        }
        out[o * inner + j] = index;
      }
    }
  });
}

template <class T>
void extreme_backward(const ReduceLayout& layout, const T* x, const T* output, const T* grad, T* grad_x) {
  const std::span<const Run> kept{layout.kept.data(), static_cast<std::size_t>(layout.kept_runs)};
  const std::span<const Run> reduced{layout.reduced.data(), static_cast<std::size_t>(layout.reduced_runs)};
  const auto outer = reduced.empty() ? reduced : reduced.first(reduced.size() - 1);
  const std::int64_t length = reduced.empty() ? 1 : reduced.back().size,
                     stride = reduced.empty() ? 0 : reduced.back().stride;
  const std::int64_t rows = layout.elements / length;
  const std::int64_t grain = std::max<std::int64_t>(1, block_elements / std::max<std::int64_t>(1, layout.elements));
  parallel_for(layout.outputs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      const std::int64_t base = offset_of(kept, o);
      const auto extreme = widen(output[o]);
      const auto is_tie = [&](std::int64_t at) {
        const auto value = widen(x[at]);
        return value == extreme || (value != value && extreme != extreme);
      };
      std::int64_t ties = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0, at = base + offset_of(outer, r); i < length; ++i, at += stride) ties += is_tie(at);
      const double share = static_cast<double>(widen(grad[o])) / static_cast<double>(std::max<std::int64_t>(1, ties));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0, at = base + offset_of(outer, r); i < length; ++i, at += stride)
          grad_x[at] = is_tie(at) ? narrow<T>(share) : T{};
    }
  });
}

}  // namespace

ReduceLayout reduce_layout(const Shape& shape, AxisSet reduced) noexcept {
  ReduceLayout layout;
  std::int64_t stride = 1;
  bool first = true, previous = false;
  for (std::int64_t d = shape.rank() - 1; d >= 0; --d) {  // innermost first, turned round below
    const bool is_reduced = (reduced & axis_bit(d)) != 0;
    if (shape[d] == 1) continue;
    auto& runs = is_reduced ? layout.reduced : layout.kept;
    int& count = is_reduced ? layout.reduced_runs : layout.kept_runs;
    if (!first && previous == is_reduced)
      runs[static_cast<std::size_t>(count - 1)].size *= shape[d];
    else
      runs[static_cast<std::size_t>(count++)] = {shape[d], stride};
    (is_reduced ? layout.elements : layout.outputs) *= shape[d];
    if (first) layout.inner_reduced = is_reduced;
    stride *= shape[d];
    first = false;
    previous = is_reduced;
  }
  std::reverse(layout.kept.begin(), layout.kept.begin() + layout.kept_runs);
  std::reverse(layout.reduced.begin(), layout.reduced.begin() + layout.reduced_runs);
  return layout;
}

void reduce(ReduceKind kind, const ReduceLayout& layout, DType dtype, const void* x, DType out_dtype, void* out) {
  if (layout.outputs == 0) return;
  if (layout.elements == 0) {  // nothing to walk: 0, or 0 / 0
    visit_dtype(out_dtype, [&]<class T>() {
      const double value = kind == ReduceKind::mean ? std::numeric_limits<double>::quiet_NaN() : 0;
      std::fill_n(static_cast<T*>(out), layout.outputs, is_floating(out_dtype) ? narrow<T>(value) : T{});
    });
    return;
  }
  if (is_floating(dtype)) {
    switch (out_dtype) {
      case DType::float64: return reduce_floating(kind, layout, dtype, x, static_cast<double*>(out));
      case DType::float16: return reduce_floating(kind, layout, dtype, x, static_cast<Float16*>(out));
      case DType::bfloat16: return reduce_floating(kind, layout, dtype, x, static_cast<BFloat16*>(out));
      default: return reduce_floating(kind, layout, dtype, x, static_cast<float*>(out));
    }
  }
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const T* p = static_cast<const T*>(x);
      if (kind == ReduceKind::max)
        reduce_integers<T, Fold::max>(layout, p, out);
      else if (kind == ReduceKind::min)
        reduce_integers<T, Fold::min>(layout, p, out);
      else
        reduce_integers<T, Fold::sum>(layout, p, out);
    }
  });
}

void argmax(DType dtype, const void* x, std::int64_t outer, std::int64_t count, std::int64_t inner, std::int64_t* out) {
  visit_dtype(dtype, [&]<class T>() { argmax_of(static_cast<const T*>(x), outer, count, inner, out); });
}

void reduce_extreme_backward(const ReduceLayout& layout, DType dtype, const void* x, const void* output,
                             const void* grad, void* grad_x) {
  const auto run = [&]<class T>() {
    extreme_backward(layout, static_cast<const T*>(x), static_cast<const T*>(output), static_cast<const T*>(grad),
                     static_cast<T*>(grad_x));
  };
  switch (dtype) {
    case DType::float64: return run.operator()<double>();
    case DType::float16: return run.operator()<Float16>();
    case DType::bfloat16: return run.operator()<BFloat16>();
    default: return run.operator()<float>();
  }
}

}  // namespace everyo::kernels
