#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <vector>

#include "base/files.h"
#include "everyo/data.h"

// IDX, the format of MNIST: two zero bytes, a byte for the type, a byte for the number of dimensions, their sizes, the
// elements; all numbers big-endian.
namespace everyo::inline v1 {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(fmt::format("[load_idx] {}: {}", path, why), ErrorKind::shape);
}

template <class Stored>
Stored big_endian(const std::byte* bytes) {
  std::array<std::byte, sizeof(Stored)> reversed;
  std::reverse_copy(bytes, bytes + sizeof(Stored), reversed.begin());
  return std::bit_cast<Stored>(reversed);
}

// Elements as the file has them, then as T.
template <class Stored, class T>
Tensor elements(const base::InputFile& file, std::uint64_t begin, const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, dtype_v<T>);
  std::vector<std::byte> bytes(tensor.data<T>().size() * sizeof(Stored));
  file.read(begin, bytes);
  const auto to = tensor.data<T>();
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<T>(big_endian<Stored>(bytes.data() + i * sizeof(Stored)));
  return tensor;
}

struct Type {
  std::uint8_t code;
  std::size_t size;
  Tensor (*read)(const base::InputFile&, std::uint64_t, const Shape&);
};
constexpr Type types[] = {{0x08, 1, elements<std::uint8_t, std::uint8_t>},
                          {0x09, 1, elements<std::int8_t, std::int32_t>},
                          {0x0b, 2, elements<std::int16_t, std::int32_t>},
                          {0x0c, 4, elements<std::int32_t, std::int32_t>},
                          {0x0d, 4, elements<float, float>},
                          {0x0e, 8, elements<double, double>}};

}  // namespace

Tensor load_idx(const std::string& path) {
  const base::InputFile file(path);
  std::array<std::byte, 4> magic;
  if (file.size() < magic.size()) fail(path, "it is too short for an IDX file");
  file.read(0, magic);
  const auto code = [&](std::size_t i) { return std::to_integer<std::uint8_t>(magic[i]); };
  if (code(0) == 0x1f && code(1) == 0x8b) fail(path, "it is compressed; unpack it first (gunzip)");
  const Type* type = std::ranges::find(types, code(2), &Type::code);
  if (code(0) != 0 || code(1) != 0 || type == std::end(types)) fail(path, "it does not begin as an IDX file does");
  const std::size_t rank = code(3);
  const std::uint64_t begin = magic.size() + 4 * rank;
  if (rank > static_cast<std::size_t>(Shape::max_rank) || file.size() < begin)
    fail(path,
         fmt::format("{} dimensions do not fit; at most {} and what the file has room for", rank, Shape::max_rank));
  std::vector<std::byte> sizes(4 * rank);
  file.read(magic.size(), sizes);
  Shape shape;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto size = static_cast<std::int64_t>(big_endian<std::uint32_t>(sizes.data() + 4 * d));
    // Sizes of a hostile file may multiply beyond what a shape can hold; none may be larger than the file.
    if (size != 0 && static_cast<std::uint64_t>(size) > file.size())
      fail(path, fmt::format("size {} is beyond the file", size));
    try {
      shape.push_back(size);
    } catch (const ShapeError& error) {
      fail(path, error.what());
    }
  }
  const std::uint64_t needed = begin + static_cast<std::uint64_t>(shape.elements()) * type->size;
  if (file.size() != needed)
    fail(path, fmt::format("shape {} needs {} bytes, the file has {}", to_string(shape), needed, file.size()));
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  return type->read(file, begin, shape);
}

}  // namespace everyo::inline v1
