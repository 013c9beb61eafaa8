#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// ZIP archives in memory (PKWARE's APPNOTE.TXT), stored or deflated; below 4 GiB, so without ZIP64.
namespace everyo::io {

/// Reads a hostile archive: what it says of sizes and places is held against its bytes before anything is allocated.
/// Every error is a FileError that begins with `what`.
class ZipReader {
 public:
  /// Borrows the bytes. Refuses what is no ZIP archive, is encrypted, in several parts or uses ZIP64, and entries that
  /// overlap, have a name twice or one that is no plain relative path.
  ZipReader(std::span<const std::byte> bytes, std::string what);

  /// Names of the entries, in the archive's order.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] bool contains(std::string_view name) const { return entries_.contains(name); }
  /// An entry's content, its checksum checked. Throws also when there is none, or when it has more than `limit` bytes.
  [[nodiscard]] std::string extract(std::string_view name, std::uint64_t limit) const;

 private:
  struct Entry {
    std::uint32_t checksum = 0, size = 0;
    bool deflated = false;
    std::span<const std::byte> stored{};
  };
  [[noreturn]] void fail(std::string_view why) const;
  Entry read_local(std::uint64_t offset, std::uint64_t end, std::string_view name, std::uint32_t stored_size) const;

  std::span<const std::byte> bytes_;
  std::string what_;
  std::vector<std::string> names_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Makes an archive. The same entries give the same bytes.
class ZipWriter {
 public:
  /// Throws ValueError for a name given twice or an archive beyond 4 GiB.
  void add(std::string_view name, std::span<const std::byte> content, bool deflate);
  /// The archive.
  [[nodiscard]] std::string finish() &&;

 private:
  std::string bytes_, directory_;
  std::map<std::string, bool, std::less<>> names_;
};

}  // namespace everyo::io
