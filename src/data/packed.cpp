#include "everyo/data/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "data/gather.h"
#include "data/part.h"

namespace everyo::inline v1 {
namespace {

static_assert(std::endian::native == std::endian::little, "the header's numbers and the arrays are little-endian");

constexpr std::string_view mark(
    "\x89"
    "EVPACK\n",
    8);
constexpr std::uint32_t version = 1;
constexpr std::uint64_t alignment = 64;
constexpr std::size_t digest_bytes = 32;

// Where the header's fields lie.
constexpr std::size_t header_bytes = 256, version_at = 8, digests_at = 160, checksum_at = 224;
struct ArrayFields {
  std::size_t dtype, rank, sizes;
};
constexpr ArrayFields features_at{12, 20, 32}, targets_at{16, 24, 96};

// Numbers of the dtypes in files; they stay when the library's enumeration changes.
constexpr std::array<std::pair<std::uint32_t, DType>, dtype_count> dtype_codes{
    {{1, float32}, {2, float64}, {3, float16}, {4, bfloat16}, {5, int64}, {6, int32}, {7, uint8}, {8, boolean}}};

using Header = std::array<std::byte, header_bytes>;

template <class T>
void put(Header& header, std::size_t at, T value) {
  std::memcpy(header.data() + at, &value, sizeof(T));
}
template <class T>
T get(std::span<const std::byte> header, std::size_t at) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof(T));
  return value;
}

std::uint64_t targets_begin(const Spec& features) {
  return (header_bytes + features.bytes() + alignment - 1) / alignment * alignment;
}

std::array<std::byte, digest_bytes> binary(std::string_view hexadecimal) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::array<std::byte, digest_bytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(hexadecimal[2 * i]) << 4 | digit(hexadecimal[2 * i + 1]));
  return bytes;
}
std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

void put_array(Header& header, const ArrayFields& at, const Spec& spec) {
  const auto* code = std::ranges::find(dtype_codes, spec.dtype, &std::pair<std::uint32_t, DType>::second);
  put(header, at.dtype, code->first);
  put(header, at.rank, static_cast<std::uint32_t>(spec.shape.rank()));
  for (std::int64_t d = 0; d < spec.shape.rank(); ++d)
    put(header, at.sizes + 8 * static_cast<std::size_t>(d), spec.shape[d]);
}

Header make_header(const PackedInfo& info) {
  Header header{};
  std::memcpy(header.data(), mark.data(), mark.size());
  put(header, version_at, version);
  put_array(header, features_at, info.features);
  put_array(header, targets_at, info.targets);
  put(header, digests_at, binary(info.features_digest));
  put(header, digests_at + digest_bytes, binary(info.targets_digest));
  put(header, checksum_at, binary(base::sha256(std::span(header).first(checksum_at))));
  return header;
}

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(fmt::format("[PackedDataset] {}: {}", path, why));
}

Spec read_array(std::span<const std::byte> header, const ArrayFields& at, const std::string& path) {
  const auto code = get<std::uint32_t>(header, at.dtype), rank = get<std::uint32_t>(header, at.rank);
  const auto* known = std::ranges::find(dtype_codes, code, &std::pair<std::uint32_t, DType>::first);
  if (known == dtype_codes.end()) fail(path, fmt::format("it has the dtype number {}, which is none", code));
  if (rank < 1 || rank > static_cast<std::uint32_t>(Shape::max_rank))
    fail(path, fmt::format("it has an array of {} dimensions; 1 to {} are allowed", rank, Shape::max_rank));
  Spec spec{known->second, {}};
  try {
    for (std::size_t d = 0; d < rank; ++d) spec.shape.push_back(get<std::int64_t>(header, at.sizes + 8 * d));
  } catch (const ShapeError& error) {
    fail(path, error.what());
  }
  return spec;
}

PackedInfo read_header(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < header_bytes || std::memcmp(file.data(), mark.data(), mark.size()) != 0)
    fail(path, "it does not begin as a packed data set does; 'everyo pack' makes one");
  const std::span<const std::byte> header = file.first(header_bytes);
  if (const auto found = get<std::uint32_t>(header, version_at); found != version)
    fail(path, fmt::format("its format version is {}; this library reads version {}", found, version));
  if (hexadecimal(header.subspan(checksum_at)) != base::sha256(header.first(checksum_at)))
    fail(path, "its header is damaged: the checksum does not agree");
  PackedInfo info{read_array(header, features_at, path), read_array(header, targets_at, path), file.size(),
                  hexadecimal(header.subspan(digests_at, digest_bytes)),
                  hexadecimal(header.subspan(digests_at + digest_bytes, digest_bytes))};
  if (info.features.shape[0] != info.targets.shape[0])
    fail(path, fmt::format("features {} and targets {} differ in their number of samples",
                           to_string(info.features.shape), to_string(info.targets.shape)));
  const std::uint64_t needed = targets_begin(info.features) + info.targets.bytes();
  if (file.size() != needed)
    fail(path, fmt::format("features {} and targets {} need {} bytes, the file has {}", to_string(info.features.shape),
                           to_string(info.targets.shape), needed, file.size()));
  return info;
}

/// Writes one of the two arrays, piece by piece.
class Column {
 public:
  Column(std::uint64_t begin, const Spec& spec) : next_(begin), spec_(spec) {}
  void append(base::OutputFile& file, const Tensor& rows, std::string_view what) {
    data::check_same_row(what, data::row_spec(rows.spec()), data::row_spec(spec_));
    if (rows.spec().bytes() == 0) return;
    const std::span<const std::byte> bytes(rows.bytes(), rows.spec().bytes());
    file.write(next_, bytes);
    digest_.update(bytes);
    next_ += bytes.size();
  }
  std::string digest() { return digest_.finish(); }

 private:
  std::uint64_t next_;
  Spec spec_;
  base::Sha256 digest_;
};

}  // namespace

PackedInfo pack(const Dataset& data, const std::string& path) {
  constexpr std::size_t block_bytes = std::size_t{4} << 20;
  const std::int64_t samples = data.size();
  if (samples == 0) throw ValueError("[pack] the data set has no samples; there is nothing to pack");
  const ContextScope in(data::data_context(context().threads));

  const auto read = [&](std::int64_t first, std::int64_t count) {
    Batch rows = data.range(first, count);
    data::check_rows("pack", rows, count);
    return rows;
  };
  Batch rows = read(0, 1);
  PackedInfo info;
  info.features = data::stacked(data::row_spec(rows.features.spec()), samples);
  info.targets = data::stacked(data::row_spec(rows.targets.spec()), samples);
  info.bytes = targets_begin(info.features) + info.targets.bytes();
  const std::size_t row_bytes = std::max<std::size_t>(1, rows.features.spec().bytes() + rows.targets.spec().bytes());
  const auto block = static_cast<std::int64_t>(std::max<std::size_t>(1, block_bytes / row_bytes));

  base::OutputFile file(path);
  Column features(header_bytes, info.features), targets(targets_begin(info.features), info.targets);
  for (std::int64_t first = 0; first < samples; first += block) {
    rows = read(first, std::min(block, samples - first));
    features.append(file, rows.features, "[pack] features");
    targets.append(file, rows.targets, "[pack] targets");
  }
  if (info.targets.bytes() == 0) {  // rows of nothing: the file still ends where they would begin
    constexpr std::array<std::byte, alignment> zeros{};
    const std::uint64_t end = header_bytes + info.features.bytes();
    file.write(end, std::span(zeros).first(static_cast<std::size_t>(info.bytes - end)));
  }
  info.features_digest = features.digest();
  info.targets_digest = targets.digest();
  file.write(0, make_header(info));
  file.put_in_place();
  return info;
}

// ---- reading --------------------------------------------------------------------------------------------------------

struct PackedDataset::File {
  explicit File(const std::string& name) : path(name), map(name), info(read_header(map.bytes(), name)) {
    for (const auto& [all, spec] : {std::pair(features(), info.features), {targets(), info.targets}})
      if (spec.dtype == boolean && std::ranges::any_of(all, [](std::byte b) { return b > std::byte{1}; }))
        fail(path, "a bool in it is neither 0 nor 1; it is damaged");
  }
  [[nodiscard]] std::span<const std::byte> features() const {
    return map.bytes().subspan(header_bytes, info.features.bytes());
  }
  [[nodiscard]] std::span<const std::byte> targets() const {
    return map.bytes().subspan(static_cast<std::size_t>(targets_begin(info.features)), info.targets.bytes());
  }
  std::string path;
  base::MappedFile map;
  PackedInfo info;
};

PackedDataset::PackedDataset(const std::string& path) : file_(std::make_shared<const File>(path)) {}
PackedDataset::~PackedDataset() = default;

std::int64_t PackedDataset::size() const noexcept { return info().features.shape[0]; }
const PackedInfo& PackedDataset::info() const noexcept { return file_->info; }

Batch PackedDataset::rows(std::span<const std::int64_t> indices) const {
  data::check_indices("PackedDataset", indices, size());
  return {data::gather(file_->features(), info().features, indices),
          data::gather(file_->targets(), info().targets, indices)};
}

Batch PackedDataset::range(std::int64_t first, std::int64_t count) const {
  data::check_range("PackedDataset", first, count, size());
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  const auto copy = [&](std::span<const std::byte> all, Spec spec) {
    spec.shape.set(0, count);
    Tensor out = Tensor::empty(spec);
    const std::size_t bytes = spec.bytes();
    if (bytes > 0)
      std::memcpy(out.bytes(), all.data() + bytes / static_cast<std::size_t>(count) * static_cast<std::size_t>(first),
                  bytes);
    return out;
  };
  return {copy(file_->features(), info().features), copy(file_->targets(), info().targets)};
}

void PackedDataset::verify() const {
  if (base::sha256(file_->features()) != info().features_digest ||
      base::sha256(file_->targets()) != info().targets_digest)
    fail(file_->path, "its data is damaged: the checksum does not agree; pack it again");
}

}  // namespace everyo::inline v1
