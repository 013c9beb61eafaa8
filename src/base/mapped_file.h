#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/files.h"

namespace everyo::base {

/// A whole file as memory that is read-only and shared with other processes. Throws FileError as InputFile does.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) : MappedFile(InputFile(path)) {}
  explicit MappedFile(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {begin_, size_}; }

 private:
  const std::byte* begin_ = nullptr;  // a multiple of the page size
  std::size_t size_ = 0;
};

}  // namespace everyo::base
