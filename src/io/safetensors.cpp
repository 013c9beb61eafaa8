#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/files.h"
#include "everyo/error.h"
#include "everyo/io.h"
#include "io/safetensors_header.h"

namespace everyo::inline v1 {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian; bytes are copied as they are");

/// Size of the number before the header, which gives the header's size.
constexpr std::size_t prefix_bytes = 8;
/// The format's own limit.
constexpr std::uint64_t most_header_bytes = 100'000'000;

/// The header's entries for `tensors`, and the tensors' order in the file.
std::pair<io::Header, std::vector<const NamedTensor*>> lay_out(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : tensors) {
    const auto& [name, tensor] = named;
    if (name == "__metadata__")
      throw ValueError("[save_safetensors] the name '__metadata__' is the format's own; use another");
    if (!tensor.defined() || tensor.is_meta()) {
      throw StateError(fmt::format("[save_safetensors] tensor '{}' has no data; save it where it has", name));
    }
    order.push_back(&named);
  }
  std::ranges::sort(order, [](const NamedTensor* a, const NamedTensor* b) {
    return io::stored_before(a->second.spec(), a->first, b->second.spec(), b->first);
  });
  io::Header header;
  std::uint64_t at = 0;
  for (const NamedTensor* named : order) {
    const Spec spec = named->second.spec();
    header.entries.push_back({named->first, spec, at, at + spec.bytes()});
    at += spec.bytes();
  }
  return {std::move(header), std::move(order)};
}

void check_unique(std::span<const NamedTensor> tensors) {
  std::vector<std::string_view> names;
  for (const NamedTensor& named : tensors) names.push_back(named.first);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) throw ValueError(fmt::format("[save_safetensors] the name '{}' is given twice", *twice));
}

Tensor read_tensor(const base::InputFile& file, const io::HeaderEntry& entry, std::uint64_t data_begin,
                   std::string_view what) {
  Tensor tensor = Tensor::empty(entry.spec);
  if (entry.begin == entry.end) return tensor;
  const std::span bytes(tensor.bytes(), entry.spec.bytes());
  file.read(data_begin + entry.begin, bytes);
  // Any other byte would be no bool to the compiler.
  const bool all_bools =
      entry.spec.dtype != boolean || std::ranges::all_of(bytes, [](std::byte b) { return b <= std::byte{1}; });
  if (!all_bools)
    throw FileError(fmt::format("{}: '{}' is of bools, but has bytes other than 0 and 1", what, entry.name));
  return tensor;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const Metadata& metadata) {
  check_unique(tensors);
  auto [header, order] = lay_out(tensors);
  header.metadata = metadata;
  const std::string json = io::print_header(header);
  const std::uint64_t json_bytes = json.size();
  if (json_bytes > most_header_bytes) {
    throw ValueError(fmt::format("[save_safetensors] names and metadata take {} bytes; the format allows {}",
                                 json_bytes, most_header_bytes));
  }
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(&json_bytes, 1)),
                                                std::as_bytes(std::span(json))};
  for (const NamedTensor* named : order) parts.emplace_back(named->second.bytes(), named->second.spec().bytes());
  base::write_file(path, parts);
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  const std::string what = fmt::format("[load_safetensors] '{}'", path.string());
  const base::InputFile file(path);
  std::uint64_t json_bytes = 0;
  if (file.size() < prefix_bytes) {
    throw FileError(
        fmt::format("{}: the file has {} bytes, a safetensors file at least {}", what, file.size(), prefix_bytes));
  }
  file.read(0, std::as_writable_bytes(std::span(&json_bytes, 1)));
  const std::uint64_t rest = file.size() - prefix_bytes;
  if (json_bytes > rest || json_bytes > most_header_bytes) {
    throw FileError(
        fmt::format("{}: the header claims {} bytes; the file has {} after its first 8, and {} are the limit. It "
                    "is truncated, or no safetensors file",
                    what, json_bytes, rest, most_header_bytes));
  }
  std::string json(static_cast<std::size_t>(json_bytes), '\0');
  file.read(prefix_bytes, std::as_writable_bytes(std::span(json)));
  io::Header header = io::parse_header(json, rest - json_bytes, what);

  const Scoped<&Context::meta> with_data(false);
  SafetensorsFile result{{}, std::move(header.metadata)};
  result.tensors.reserve(header.entries.size());
  for (io::HeaderEntry& entry : header.entries) {
    Tensor tensor = read_tensor(file, entry, prefix_bytes + json_bytes, what);
    result.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  return result;
}

}  // namespace everyo::inline v1
