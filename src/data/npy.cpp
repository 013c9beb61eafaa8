#include "data/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "everyo/data.h"

// NumPy's .npy (numpy.lib.format, versions 1 to 3): "\x93NUMPY", two version bytes, the header's size, a Python dict of
// 'descr', 'fortran_order' and 'shape' as text, the elements.
namespace everyo::inline v1 {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t most_header_bytes = 1 << 16;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(fmt::format("[load_npy] {}: {}", path, why), ErrorKind::shape);
}

// The dict, taken apart word by word; of Python's literals it knows what a header may hold.
class Header {
 public:
  Header(std::string_view text, const std::string& path) : rest_(text), path_(path) {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (!seen_.insert(key).second) fail(path_, fmt::format("the header has '{}' twice", base::printable(key)));
      if (key == "descr")
        descr = quoted();
      else if (key == "fortran_order")
        fortran = truth();
      else if (key == "shape")
        read_shape();
      else
        fail(path_, fmt::format("the header has the key '{}'", base::printable(key)));
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty() || seen_.size() != 3) fail(path_, "the header is not whole");
  }

  std::string_view descr;
  bool fortran = false;
  Shape shape;

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_blanks();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(path_, fmt::format("the header lacks '{}'", c));
  }
  std::string_view quoted() {
    expect('\'');
    const std::size_t end = rest_.find('\'');
    if (end == std::string_view::npos) fail(path_, "the header has an open quote");
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return word;
  }
  bool truth() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    fail(path_, "fortran_order is neither True nor False");
  }
  void read_shape() {
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc{}) fail(path_, "a size is no number");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      try {
        shape.push_back(size);
      } catch (const ShapeError& refused) {
        fail(path_, refused.what());
      }
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view rest_;
  const std::string& path_;
  std::set<std::string_view> seen_;
};

constexpr std::pair<std::string_view, DType> descrs[] = {{"<f4", float32}, {"<f8", float64}, {"<f2", float16},
                                                         {"<i8", int64},   {"<i4", int32},   {"|u1", uint8},
                                                         {"|b1", boolean}};

DType dtype_of_descr(std::string_view descr, const std::string& path) {
  for (const auto& [name, dtype] : descrs)
    if (name == descr) return dtype;
  fail(path,
       fmt::format("its dtype '{}' is none that is read; save it as float32, float64, float16, int64, int32, uint8 "
                   "or bool, little-endian",
                   base::printable(descr)));
}

}  // namespace

}  // namespace everyo::inline v1

namespace everyo::data {

Tensor read_npy(const ByteSource& file, const std::string& path) {
  std::array<std::byte, 12> start{};
  const std::uint64_t least = 10;
  if (file.size < least) fail(path, "it is too short for an .npy file");
  file.read(0, std::span(start).first(static_cast<std::size_t>(std::min<std::uint64_t>(file.size, start.size()))));
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0) fail(path, "it does not begin as an .npy file does");
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint64_t>(start[i]); };
  const std::uint64_t version = at(6), size_bytes = version == 1 ? 2 : 4, begin = 8 + size_bytes;
  if (version < 1 || version > 3) fail(path, fmt::format("its format version is {}; 1 to 3 are read", version));
  std::uint64_t header_bytes = 0;
  for (std::uint64_t i = size_bytes; i-- > 0;) header_bytes = header_bytes << 8 | at(8 + i);
  if (file.size < begin || header_bytes > std::min(file.size - begin, most_header_bytes))
    fail(path, fmt::format("its header of {} bytes does not fit", header_bytes));
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  const Header header(text, path);

  const Spec spec{dtype_of_descr(header.descr, path), header.shape};
  const std::uint64_t data = begin + header_bytes;
  if (file.size - data != spec.bytes())
    fail(path, fmt::format("shape {} needs {} bytes, the file has {}", to_string(spec.shape), spec.bytes(),
                           file.size - data));
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  const Tensor tensor = Tensor::empty(spec);
  file.read(data, {tensor.bytes(), spec.bytes()});
  if (spec.dtype == boolean)
    for (std::byte& b : std::span(tensor.bytes(), spec.bytes())) b = b == std::byte{0} ? b : std::byte{1};
  if (!header.fortran || spec.shape.rank() < 2) return tensor;
  std::vector<std::int64_t> strides;  // of the first dimension 1
  std::int64_t stride = 1;
  for (const std::int64_t size : spec.shape.sizes()) {
    strides.push_back(stride);
    stride *= std::max<std::int64_t>(size, 1);
  }
  return Tensor::borrow(tensor.bytes(), spec, strides).copy();
}

std::string npy_header(const Spec& spec) {
  const auto found = std::ranges::find(descrs, spec.dtype, &std::pair<std::string_view, DType>::second);
  if (found == std::end(descrs))
    throw DTypeError(fmt::format("[npy] NumPy has no {}; convert to float32", name_of(spec.dtype)));
  std::string shape;
  for (const std::int64_t size : spec.shape.sizes()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
  if (spec.shape.rank() == 1) shape += ',';
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", found->first, shape);
  const std::size_t before = magic.size() + 4;  // and two version bytes, two of the size
  text.append(63 - (before + text.size()) % 64, ' ');
  text += '\n';
  std::string header(magic);
  for (const std::size_t byte : {std::size_t{1}, std::size_t{0}, text.size() & 0xff, text.size() >> 8})
    header.push_back(static_cast<char>(byte));
  return header + text;
}

}  // namespace everyo::data

namespace everyo::inline v1 {

Tensor load_npy(const std::string& path) {
  const base::InputFile file(path);
  return data::read_npy({file.size(), [&](std::uint64_t at, std::span<std::byte> out) { file.read(at, out); }}, path);
}

}  // namespace everyo::inline v1
