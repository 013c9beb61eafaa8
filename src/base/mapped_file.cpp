#include "base/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "everyo/error.h"

namespace everyo::base {

MappedFile::MappedFile(const InputFile& file) : size_(static_cast<std::size_t>(file.size())) {
  if (size_ == 0) return;  // no mapping has no bytes
  void* const begin = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (begin == MAP_FAILED)
    throw FileError(fmt::format("[file] cannot map '{}' of {} bytes: {}", file.path().string(), size_,
                                std::generic_category().message(errno)));
  begin_ = static_cast<const std::byte*>(begin);
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) munmap(const_cast<std::byte*>(begin_), size_);
}

}  // namespace everyo::base
