#include "kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/parallel.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t block_bytes = 131072;  // the least worth a block of its own
constexpr std::int64_t tile = 64;             // of a transposed plane

struct Dimension {
  std::int64_t size, to, from;  // strides in elements
};

// The walk with the fewest dimensions: size 1 dropped, ordered by falling stride in `to`, neighbours merged.
struct Walk {
  std::array<Dimension, static_cast<std::size_t>(Shape::max_rank)> dimensions{};
  std::size_t count = 0;
  std::int64_t elements = 1;
};

Walk shortest_walk(const Shape& shape, const Strides& from, const Strides& to) {
  Walk walk;
  for (std::int64_t d = 0; d < shape.rank(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    walk.elements *= shape[d];
    if (shape[d] != 1) walk.dimensions[walk.count++] = {shape[d], to[at], from[at]};
  }
  const auto first = walk.dimensions.begin(), last = first + static_cast<std::ptrdiff_t>(walk.count);
  std::stable_sort(first, last, [](const Dimension& a, const Dimension& b) { return std::abs(a.to) > std::abs(b.to); });
  std::size_t kept = 0;
  for (std::size_t d = 1; d < walk.count; ++d) {
    Dimension& outer = walk.dimensions[kept];
    const Dimension& inner = walk.dimensions[d];
    if (outer.to == inner.to * inner.size && outer.from == inner.from * inner.size)
      outer = {outer.size * inner.size, inner.to, inner.from};
    else
      walk.dimensions[++kept] = inner;
  }
  walk.count = walk.count == 0 ? 0 : kept + 1;
  return walk;
}

// Offsets of a position of the outer dimensions.
std::pair<std::int64_t, std::int64_t> offsets_of(std::span<const Dimension> outer, std::int64_t index) {
  std::int64_t to = 0, from = 0;
  for (std::size_t d = outer.size(); d-- > 0;) {
    const std::int64_t i = index % outer[d].size;
    index /= outer[d].size;
    to += i * outer[d].to;
    from += i * outer[d].from;
  }
  return {to, from};
}

template <class T>
void copy_line(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t count) {
  if (from_stride == 1 && to_stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  else if (from_stride == 0 && to_stride == 1)
    std::fill_n(to, count, *from);
  else
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

// Rows of `to` that are columns of `from`, at most `tile` of them: a tile at a time through a buffer, so that either
// side's cache lines are touched once, whatever the distance between them.
template <class T>
void copy_plane(const T* from, T* to, const Dimension& rows, const Dimension& columns) {
  constexpr std::int64_t pitch = tile + 1;
  T buffer[tile * pitch];
  for (std::int64_t c = 0; c < columns.size; c += tile) {
    const std::int64_t width = std::min(tile, columns.size - c);
    for (std::int64_t j = 0; j < width; ++j)
      copy_line(from + (c + j) * columns.from, rows.from, buffer + j * pitch, 1, rows.size);
    for (std::int64_t i = 0; i < rows.size; ++i)
      copy_line(buffer + i, pitch, to + i * rows.to + c * columns.to, columns.to, width);
  }
}

template <class T>
void copy_walk(Walk walk, const T* from, T* to) {
  if (walk.elements == 0) return;
  if (walk.count == 0) return void(*to = *from);
  const std::size_t inner = walk.count - 1;
  // A transposed plane: the innermost line jumps in `from`, and another dimension is `from`'s contiguous one.
  std::size_t plane = walk.count;
  if (walk.dimensions[inner].from != 1 && walk.dimensions[inner].from != 0)
    for (std::size_t d = 0; d < inner; ++d)
      if (std::abs(walk.dimensions[d].from) == 1) plane = d;
  const bool tiled = plane != walk.count;
  if (tiled)
    std::rotate(walk.dimensions.begin() + static_cast<std::ptrdiff_t>(plane),
                walk.dimensions.begin() + static_cast<std::ptrdiff_t>(plane) + 1,
                walk.dimensions.begin() + static_cast<std::ptrdiff_t>(inner));
  Dimension rows = tiled ? walk.dimensions[inner - 1] : Dimension{1, 0, 0};
  const Dimension columns = walk.dimensions[inner];
  std::size_t outer_count = tiled ? inner - 1 : inner;
  // Strips of rows are units of work, so that one large plane is shared by the threads.
  const std::int64_t strips = tiled ? (rows.size + tile - 1) / tile : 1;
  const std::span<const Dimension> outer(walk.dimensions.data(), outer_count);
  const std::int64_t units = walk.elements / (rows.size * columns.size) * strips;
  const std::int64_t unit_bytes = walk.elements / units * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t grain = std::max<std::int64_t>(1, block_bytes / std::max<std::int64_t>(1, unit_bytes));
  if (units == 1 && !tiled) {  // one line: cut it
    const std::int64_t line_grain = block_bytes / static_cast<std::int64_t>(sizeof(T));
    return parallel_for(columns.size, line_grain, [=](std::int64_t begin, std::int64_t end) {
      copy_line(from + begin * columns.from, columns.from, to + begin * columns.to, columns.to, end - begin);
    });
  }
  parallel_for(units, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t u = begin; u < end; ++u) {
      const auto [to_offset, from_offset] = offsets_of(outer, u / strips);
      if (!tiled) {
        copy_line(from + from_offset, columns.from, to + to_offset, columns.to, columns.size);
        continue;
      }
      const std::int64_t first = u % strips * tile;
      copy_plane(from + from_offset + first * rows.from, to + to_offset + first * rows.to,
                 {std::min(tile, rows.size - first), rows.to, rows.from}, columns);
    }
  });
}

}  // namespace

Strides contiguous_strides(const Shape& shape) noexcept {
  Strides strides{};
  std::int64_t stride = 1;
  for (std::int64_t d = shape.rank() - 1; d >= 0; --d) {
    strides[static_cast<std::size_t>(d)] = stride;
    stride *= shape[d];
  }
  return strides;
}

void copy_strided(const Shape& shape, std::size_t element_size, const void* from, const Strides& from_strides, void* to,
                  const Strides& to_strides) {
  const Walk walk = shortest_walk(shape, from_strides, to_strides);
  switch (element_size) {
    case 1: return copy_walk(walk, static_cast<const std::uint8_t*>(from), static_cast<std::uint8_t*>(to));
    case 2: return copy_walk(walk, static_cast<const std::uint16_t*>(from), static_cast<std::uint16_t*>(to));
    case 4: return copy_walk(walk, static_cast<const std::uint32_t*>(from), static_cast<std::uint32_t*>(to));
    default: return copy_walk(walk, static_cast<const std::uint64_t*>(from), static_cast<std::uint64_t*>(to));
  }
}

void transpose(const Shape& shape, std::span<const std::int64_t> permutation, std::size_t element_size,
               const void* from, void* to) {
  const Strides strides = contiguous_strides(shape);
  Shape permuted;
  Strides from_strides{};
  for (std::size_t d = 0; d < permutation.size(); ++d) {
    permuted.push_back(shape[permutation[d]]);
    from_strides[d] = strides[static_cast<std::size_t>(permutation[d])];
  }
  copy_strided(permuted, element_size, from, from_strides, to, contiguous_strides(permuted));
}

}  // namespace everyo::kernels
