#include "kernels/index.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "everyo/half.h"
#include "kernels/fold.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t block_bytes = 131072;

template <class F>
decltype(auto) with_index(DType dtype, const void* index, F&& f) {
  return dtype == int32 ? f(static_cast<const std::int32_t*>(index)) : f(static_cast<const std::int64_t*>(index));
}

std::int64_t from_end(std::int64_t i, std::int64_t limit) noexcept { return i < 0 ? i + limit : i; }

// Positions grouped by the row they name, ascending within a row: those of row r are order()[first(r)] ..
// order()[first(r + 1) - 1].
class Grouped {
 public:
  template <class Index>
  Grouped(const Index* index, std::int64_t count, std::int64_t limit) : bounds_(limit + 2), order_(count) {
    // Sums make bounds[r + 1] the start of row r; filling in moves it to the row's end, which is the next row's start.
    std::int64_t* const bounds = bounds_.data();
    std::fill_n(bounds, limit + 2, 0);
    for (std::int64_t i = 0; i < count; ++i) ++bounds[from_end(index[i], limit) + 2];
    for (std::int64_t r = 1; r < limit + 2; ++r) bounds[r] += bounds[r - 1];
    for (std::int64_t i = 0; i < count; ++i) order_.data()[bounds[from_end(index[i], limit) + 1]++] = i;
  }
  [[nodiscard]] std::int64_t first(std::int64_t row) const noexcept { return bounds_.data()[row]; }
  [[nodiscard]] const std::int64_t* order() const noexcept { return order_.data(); }

 private:
  Scratch<std::int64_t> bounds_, order_;
};

template <class T>
void sum_groups(const IndexedRows& rows, const Grouped& grouped, const T* grad, T* grad_x) {
  constexpr std::int64_t tile = 256;
  const std::int64_t row_bytes = rows.inner * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t grain = std::max<std::int64_t>(1, block_bytes / std::max<std::int64_t>(1, row_bytes));
  parallel_for(rows.outer * rows.limit, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t outer = t / rows.limit;
      const std::int64_t row = t % rows.limit;
      const T* source = grad + outer * rows.count * rows.inner;
      T* target = grad_x + t * rows.inner;
      const auto first = grouped.first(row), last = grouped.first(row + 1);
      if (first == last) std::fill_n(target, rows.inner, T{});
      if (last - first == 1) std::copy_n(source + grouped.order()[first] * rows.inner, rows.inner, target);
      if (last - first <= 1) continue;
      for (std::int64_t j = 0; j < rows.inner; j += tile) {
        const std::int64_t columns = std::min(tile, rows.inner - j);
        double acc[tile] = {};
        for (std::int64_t p = first; p < last; ++p)
          fold_columns(Fold::sum, dtype_v<T>, source + grouped.order()[p] * rows.inner + j, 1, 0, columns, acc);
        for (std::int64_t c = 0; c < columns; ++c) target[j + c] = narrow<T>(acc[c]);
      }
    }
  });
}

}  // namespace

std::int64_t find_bad_index(DType index_dtype, const void* index, std::int64_t count, std::int64_t lowest,
                            std::int64_t limit) noexcept {
  return with_index(index_dtype, index, [=](const auto* p) -> std::int64_t {
    for (std::int64_t i = 0; i < count; ++i)
      if (p[i] < lowest || p[i] >= limit) return i;
    return -1;
  });
}

std::int64_t index_at(DType index_dtype, const void* index, std::int64_t position) noexcept {
  return with_index(index_dtype, index, [=](const auto* p) -> std::int64_t { return p[position]; });
}

void gather_rows(const IndexedRows& rows, std::size_t element_size, const void* x, void* out) {
  const std::size_t row_bytes = static_cast<std::size_t>(rows.inner) * element_size;
  if (row_bytes == 0) return;
  const std::int64_t grain =
      std::max<std::int64_t>(1, block_bytes / std::max<std::int64_t>(1, static_cast<std::int64_t>(row_bytes)));
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(out);
  with_index(rows.index_dtype, rows.index, [&](const auto* index) {
    parallel_for(rows.outer * rows.count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t row = t / rows.count * rows.limit + from_end(index[t % rows.count], rows.limit);
        std::memcpy(to + static_cast<std::size_t>(t) * row_bytes, from + static_cast<std::size_t>(row) * row_bytes,
                    row_bytes);
      }
    });
  });
}

void gather_rows_backward(const IndexedRows& rows, DType dtype, const void* grad, void* grad_x) {
  const Grouped grouped = with_index(rows.index_dtype, rows.index,
                                     [&](const auto* index) { return Grouped(index, rows.count, rows.limit); });
  const auto run = [&]<class T>() { sum_groups(rows, grouped, static_cast<const T*>(grad), static_cast<T*>(grad_x)); };
  switch (dtype) {
    case DType::float64: return run.operator()<double>();
    case DType::float16: return run.operator()<Float16>();
    case DType::bfloat16: return run.operator()<BFloat16>();
    default: return run.operator()<float>();
  }
}

void one_hot(DType index_dtype, const void* index, std::int64_t count, std::int64_t classes, DType dtype, void* out) {
  const std::size_t bytes = static_cast<std::size_t>(count * classes) * size_of(dtype);
  if (bytes == 0) return;
  std::memset(out, 0, bytes);  // 0 is all bits clear in every dtype
  with_index(index_dtype, index, [&](const auto* p) {
    visit_dtype(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < count; ++i)
        static_cast<T*>(out)[i * classes + from_end(p[i], classes)] = narrow<T>(1.0f);
    });
  });
}

void fill(DType dtype, void* out, std::int64_t n, double value) {
  visit_dtype(dtype, [&]<class T>() {
    T* p = static_cast<T*>(out);
    const T element = narrow<T>(value);
    const auto grain = block_bytes / static_cast<std::int64_t>(sizeof(T));
    parallel_for(n, grain, [=](std::int64_t begin, std::int64_t end) { std::fill(p + begin, p + end, element); });
  });
}

void arange(DType dtype, void* out, std::int64_t n, double start, double step) {
  visit_dtype(dtype, [&]<class T>() {
    T* p = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i) p[i] = narrow<T>(start + static_cast<double>(i) * step);
  });
}

}  // namespace everyo::kernels
