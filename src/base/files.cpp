#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "everyo/error.h"

namespace everyo::base {
namespace {

using Path = std::filesystem::path;

[[noreturn]] void fail(std::string_view action, const Path& file, int code) {
  const bool missing = code == ENOENT;
  throw FileError(fmt::format("[file] cannot {} '{}': {}", action, file.string(),
                              missing ? "not found" : std::generic_category().message(code)),
                  missing ? ErrorKind::file_not_found : ErrorKind::serialization);
}

template <class F>
auto retry(F&& call) noexcept {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Largest piece of one system call (Linux stops at 2^31 - 4096).
constexpr std::size_t piece = std::size_t{1} << 30;

}  // namespace

InputFile::InputFile(const Path& file) : path_(file) {
  descriptor_ = retry([&] { return open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor_ < 0) fail("read", path_, errno);
  struct stat status {};
  const int code = fstat(descriptor_, &status) < 0 ? errno : 0;
  if (code == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  close(descriptor_);
  if (code != 0) fail("read", path_, code);
  throw FileError(fmt::format("[file] cannot read '{}': it is {}, not a file", path_.string(),
                              S_ISDIR(status.st_mode) ? "a directory" : "a device"));
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t size = std::min(out.size(), piece);
    const ssize_t done = retry([&] { return pread(descriptor_, out.data(), size, static_cast<off_t>(offset)); });
    if (done < 0) fail("read", path_, errno);
    if (done == 0) {
      throw FileError(fmt::format("[file] '{}' ends at byte {}, {} more were expected; it is truncated", path_.string(),
                                  offset, out.size()));
    }
    offset += static_cast<std::uint64_t>(done);
    out = out.subspan(static_cast<std::size_t>(done));
  }
}

std::string read_file(const Path& file, std::uint64_t limit) {
  const InputFile input(file);
  if (input.size() > limit) {
    throw FileError(
        fmt::format("[file] '{}' has {} bytes; at most {} are read here", file.string(), input.size(), limit));
  }
  std::string content(static_cast<std::size_t>(input.size()), '\0');
  input.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

OutputFile::OutputFile(const Path& target) : target_(target) {
  struct stat old {};
  if (lstat(target_.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode))
    throw FileError(fmt::format("[file] cannot write '{}': it is {}, which a file would replace", target_.string(),
                                S_ISDIR(old.st_mode) ? "a directory" : "a device"));
  static constinit std::atomic<unsigned> count{0};
  const std::string mark = fmt::format(".{}-{}.part", getpid(), count.fetch_add(1, std::memory_order_relaxed));
  temporary_ = target_.parent_path() / ("." + target_.filename().string() + mark);
  descriptor_ = retry([&] { return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail("write", target_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!in_place_) unlink(temporary_.c_str());
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), piece);
    const ssize_t done = retry([&] { return pwrite(descriptor_, bytes.data(), size, static_cast<off_t>(offset)); });
    if (done < 0) fail("write", target_, errno);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void OutputFile::put_in_place() {
  if (retry([&] { return fsync(descriptor_); }) < 0) fail("write", target_, errno);
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed < 0 && errno != EINTR) fail("write", target_, errno);
  if (rename(temporary_.c_str(), target_.c_str()) < 0) fail("write", target_, errno);
  in_place_ = true;
  sync_directory(target_.has_parent_path() ? target_.parent_path() : Path("."));
}

void write_file(const Path& file, std::span<const std::span<const std::byte>> parts) {
  OutputFile fresh(file);
  std::uint64_t offset = 0;
  for (const std::span<const std::byte> part : parts) {
    fresh.write(offset, part);
    offset += part.size();
  }
  fresh.put_in_place();
}

void write_file(const Path& file, std::string_view text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  write_file(file, std::span(&part, 1));
}

void sync_directory(const Path& directory) noexcept {
  const int descriptor = retry([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) return;
  retry([&] { return fsync(descriptor); });
  close(descriptor);
}

void make_directories(const Path& directory) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code) fail("make the directory", directory, code.value());
  if (!std::filesystem::is_directory(directory, code)) fail("make the directory", directory, ENOTDIR);
}

}  // namespace everyo::base
