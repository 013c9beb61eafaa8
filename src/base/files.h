#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace everyo::base {

/// A file opened for reading. Every error is a FileError that names the path; a file that does not exist has the kind
/// file_not_found.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Bytes at the time of opening.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `out` from `offset` on; a file that ends before is an error.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The whole file; an error if it has more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit);

/// Makes or replaces a file so that at any moment, also after a crash, the path names the old content or all of the
/// new: the parts are written one after the other beside it, synced, and renamed.
void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
void write_file(const std::filesystem::path& path, std::string_view text);

/// So that names made in a directory outlast a crash. Some file systems cannot sync one: then they are as safe as
/// there.
void sync_directory(const std::filesystem::path& path) noexcept;

/// Makes a directory and those above it; one that is there is no error.
void make_directories(const std::filesystem::path& path);

}  // namespace everyo::base
