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
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The whole file; an error if it has more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit);

/// A file in the making beside its final name, gone again unless it is put in place. Every error is a FileError that
/// names the final path.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// What is left out between pieces is zero.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs and renames: from here on, also after a crash, the path names this file.
  void put_in_place();
  /// Where it lies until then.
  [[nodiscard]] const std::filesystem::path& temporary() const noexcept { return temporary_; }

 private:
  std::filesystem::path target_, temporary_;
  int descriptor_ = -1;
  bool in_place_ = false;
};

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
