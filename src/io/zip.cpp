#include "io/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/json.h"
#include "everyo/error.h"

namespace everyo::io {
namespace {

constexpr std::uint32_t local_mark = 0x04034b50, directory_mark = 0x02014b50, end_mark = 0x06054b50;
constexpr std::size_t local_bytes = 30, directory_bytes = 46, end_bytes = 22;  // without names, extras and comments
constexpr std::uint16_t stored_method = 0, deflated_method = 8, encrypted_flag = 1, utf8_flag = 1 << 11;
constexpr std::uint32_t in_zip64 = 0xffffffff;
constexpr std::uint16_t made_by = 20, day_one = 1 << 5 | 1;  // version 2.0; 1980-01-01

/// Little-endian numbers of a part that is known to be there.
template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | std::to_integer<T>(bytes[at + i]));
  return value;
}
template <class T>
void append(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_plain_path(std::string_view name) {
  if (name.empty() || name.starts_with('/') ||
      name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (const std::string_view part = name.substr(begin, end - begin); part == ".." || part == ".") return false;
    begin = end + 1;
  }
  return true;
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

using Stream = std::unique_ptr<z_stream, int (*)(z_stream*)>;

void set_input(z_stream& stream, std::span<const std::byte> bytes) {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));  // zlib only reads it
  stream.avail_in = static_cast<uInt>(bytes.size());
}

/// Whether `bytes` inflate to just as many bytes as `out` has.
bool inflates_to(std::span<const std::byte> bytes, std::string& out) {
  z_stream state{};
  if (inflateInit2(&state, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const Stream stream(&state, inflateEnd);
  set_input(state, bytes);
  Bytef beyond = 0;  // zlib asks for a place even for nothing
  state.next_out = out.empty() ? &beyond : reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  return inflate(&state, Z_FINISH) == Z_STREAM_END && state.avail_in == 0 && state.avail_out == 0;
}

std::string deflated(std::span<const std::byte> bytes) {
  z_stream state{};
  if (deflateInit2(&state, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  const Stream stream(&state, deflateEnd);
  std::string out(deflateBound(&state, static_cast<uLong>(bytes.size())), '\0');
  set_input(state, bytes);
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  return out;
}

}  // namespace

void ZipReader::fail(std::string_view why) const { throw FileError(fmt::format("{}: {}", what_, why)); }

ZipReader::ZipReader(std::span<const std::byte> bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {
  // The end record stands before a comment, whose size it gives.
  if (bytes.size() < end_bytes) fail("it is no ZIP archive, or is cut short");
  constexpr std::size_t longest_comment = std::numeric_limits<std::uint16_t>::max();
  std::size_t end = bytes.size() - end_bytes;
  const std::size_t least = end - std::min(end, longest_comment);
  const auto is_end = [&] {
    return number_at<std::uint32_t>(bytes, end) == end_mark &&
           number_at<std::uint16_t>(bytes, end + 20) == bytes.size() - end - end_bytes;
  };
  while (!is_end()) {
    if (end == least) fail("it is no ZIP archive, or is cut short");
    --end;
  }
  const auto part = number_at<std::uint16_t>(bytes, end + 4), first_part = number_at<std::uint16_t>(bytes, end + 6);
  const auto count_here = number_at<std::uint16_t>(bytes, end + 8), count = number_at<std::uint16_t>(bytes, end + 10);
  const auto size = number_at<std::uint32_t>(bytes, end + 12), begin = number_at<std::uint32_t>(bytes, end + 16);
  if (count == 0xffff || size == in_zip64 || begin == in_zip64) fail("it is in ZIP64, which is not read");
  if (part != 0 || first_part != 0 || count_here != count) fail("it is one of several parts");
  if (std::uint64_t{begin} + size != end) fail("its directory does not end where its end record begins");

  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  std::span<const std::byte> rest = bytes.subspan(begin, size);
  for (std::size_t i = 0; i < count; ++i) {
    if (rest.size() < directory_bytes || number_at<std::uint32_t>(rest, 0) != directory_mark)
      fail(fmt::format("entry {} of its directory is damaged", i));
    const std::size_t name_bytes = number_at<std::uint16_t>(rest, 28), extra_bytes = number_at<std::uint16_t>(rest, 30),
                      comment_bytes = number_at<std::uint16_t>(rest, 32);
    const std::size_t whole = directory_bytes + name_bytes + extra_bytes + comment_bytes;
    if (rest.size() < whole) fail(fmt::format("entry {} of its directory is damaged", i));
    const std::string name(text(rest.subspan(directory_bytes, name_bytes)));
    const std::string shown = base::printable(name);
    if (!is_plain_path(name)) fail(fmt::format("the name '{}' of an entry is no plain path", shown));
    const auto flags = number_at<std::uint16_t>(rest, 8), method = number_at<std::uint16_t>(rest, 10);
    const auto stored_size = number_at<std::uint32_t>(rest, 20), full_size = number_at<std::uint32_t>(rest, 24),
               offset = number_at<std::uint32_t>(rest, 42);
    if ((flags & encrypted_flag) != 0) fail(fmt::format("'{}' is encrypted", shown));
    if (method != stored_method && method != deflated_method)
      fail(fmt::format("'{}' is packed by method {}; stored (0) and deflated (8) are read", shown, method));
    if (stored_size == in_zip64 || full_size == in_zip64 || offset == in_zip64)
      fail(fmt::format("'{}' is in ZIP64, which is not read", shown));
    // No deflated byte makes more than 1032.
    const std::uint64_t most = method == deflated_method ? std::uint64_t{1032} * stored_size : stored_size;
    if (full_size > most || (method == stored_method && full_size != stored_size))
      fail(fmt::format("'{}' cannot make {} bytes of {}", shown, full_size, stored_size));

    Entry entry = read_local(offset, begin, name, stored_size);
    entry.checksum = number_at<std::uint32_t>(rest, 16);
    entry.size = full_size;
    entry.deflated = method == deflated_method;
    places.emplace_back(offset, static_cast<std::uint64_t>(entry.stored.data() - bytes.data()) + stored_size);
    if (!entries_.emplace(name, entry).second) fail(fmt::format("the name '{}' is there twice", shown));
    names_.push_back(name);
    rest = rest.subspan(whole);
  }
  if (!rest.empty()) fail("its directory has more than its entries");
  std::ranges::sort(places);
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].second) fail("two of its entries overlap");
}

ZipReader::Entry ZipReader::read_local(std::uint64_t offset, std::uint64_t end, std::string_view name,
                                       std::uint32_t stored_size) const {
  const auto damaged = [&] { fail(fmt::format("the entry '{}' is damaged", base::printable(name))); };
  if (offset + local_bytes > end || number_at<std::uint32_t>(bytes_, offset) != local_mark) damaged();
  const std::uint64_t name_bytes = number_at<std::uint16_t>(bytes_, offset + 26),
                      extra_bytes = number_at<std::uint16_t>(bytes_, offset + 28),
                      begin = offset + local_bytes + name_bytes + extra_bytes;
  if (begin + stored_size > end || text(bytes_.subspan(offset + local_bytes, name_bytes)) != name) damaged();
  Entry entry;
  entry.stored = bytes_.subspan(begin, stored_size);
  return entry;
}

std::string ZipReader::extract(std::string_view name, std::uint64_t limit) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(fmt::format("it has no '{}'", name));
  const Entry& entry = found->second;
  const std::string shown = base::printable(name);
  if (entry.size > limit) fail(fmt::format("'{}' has {} bytes; at most {} are read here", shown, entry.size, limit));
  std::string content;
  if (entry.deflated) {
    content.resize(entry.size);
    if (!inflates_to(entry.stored, content)) fail(fmt::format("'{}' does not inflate to its size", shown));
  } else {
    content = text(entry.stored);
  }
  if (checksum_of(std::as_bytes(std::span(content))) != entry.checksum)
    fail(fmt::format("'{}' was changed: its checksum differs", shown));
  return content;
}

void ZipWriter::add(std::string_view name, std::span<const std::byte> content, bool deflate) {
  const auto check = [&](bool holds, std::string_view rule) {
    if (!holds) throw ValueError(fmt::format("[ZipWriter] '{}': {}", base::printable(name), rule));
  };
  check(names_.emplace(name, true).second, "the name is given twice");
  check(is_plain_path(name) && name.size() < 0xffff, "the name is no plain path");
  const auto fits = [&](std::size_t more) { return bytes_.size() + directory_.size() + more < in_zip64 / 2; };
  check(fits(content.size()) && names_.size() < 0xffff, "the archive would be too large; 2 GiB are the most");
  const std::string packed = deflate ? deflated(content) : std::string(text(content));
  const std::size_t offset = bytes_.size();
  const auto describe = [&](std::string& out) {  // what both headers hold
    append<std::uint16_t>(out, made_by);
    append<std::uint16_t>(out, utf8_flag);
    append<std::uint16_t>(out, deflate ? deflated_method : stored_method);
    append<std::uint16_t>(out, 0);  // midnight
    append<std::uint16_t>(out, day_one);
    append<std::uint32_t>(out, checksum_of(content));
    append<std::uint32_t>(out, static_cast<std::uint32_t>(packed.size()));
    append<std::uint32_t>(out, static_cast<std::uint32_t>(content.size()));
    append<std::uint16_t>(out, static_cast<std::uint16_t>(name.size()));
    append<std::uint16_t>(out, 0);  // nothing extra
  };
  append(bytes_, local_mark);
  describe(bytes_);
  bytes_ += name;
  bytes_ += packed;
  append(directory_, directory_mark);
  append<std::uint16_t>(directory_, made_by);
  describe(directory_);
  append<std::uint16_t>(directory_, 0);  // no comment
  append<std::uint16_t>(directory_, 0);  // the first part
  append<std::uint16_t>(directory_, 0);  // binary
  append<std::uint32_t>(directory_, 0);  // no attributes
  append<std::uint32_t>(directory_, static_cast<std::uint32_t>(offset));
  directory_ += name;
}

std::string ZipWriter::finish() && {
  const std::size_t begin = bytes_.size();
  bytes_ += directory_;
  append(bytes_, end_mark);
  append<std::uint32_t>(bytes_, 0);  // in one part
  append<std::uint16_t>(bytes_, static_cast<std::uint16_t>(names_.size()));
  append<std::uint16_t>(bytes_, static_cast<std::uint16_t>(names_.size()));
  append<std::uint32_t>(bytes_, static_cast<std::uint32_t>(directory_.size()));
  append<std::uint32_t>(bytes_, static_cast<std::uint32_t>(begin));
  append<std::uint16_t>(bytes_, 0);  // no comment
  return std::move(bytes_);
}

}  // namespace everyo::io
