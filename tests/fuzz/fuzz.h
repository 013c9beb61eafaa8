#pragma once
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "everyo/error.h"
#include "everyo/tensor.h"
#include "support/temporary_folder.h"

// What the fuzzers share. Each gives its input to one reader of outside bytes and holds it to three laws: what is read
// comes back from writing it again; what is refused is refused by an everyo::Error that names the file, in few words
// that are text; neither takes more memory than the input's size explains (libFuzzer's -malloc_limit_mb).
namespace everyo::fuzz {

/// Ends the process with a finding unless the law holds.
inline void expect(bool holds, std::string_view law, std::string_view seen = {}) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: %.*s: %.*s\n", static_cast<int>(law.size()), law.data(), static_cast<int>(seen.size()),
               seen.data());
  std::abort();
}

/// A file in memory, which is opened by path as any other.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", descriptor_)) {
    expect(descriptor_ >= 0, "the system gives a file in memory");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(std::string_view content) const {
    const bool written = ftruncate(descriptor_, 0) == 0 &&
                         pwrite(descriptor_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size());
    expect(written, "a file in memory can be written");
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

inline bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// What `read` gives, or nothing when it refuses the file called `name`.
template <class F>
std::optional<std::invoke_result_t<F>> read_or_refuse(std::string_view name, F&& read) {
  constexpr std::size_t longest = 1000;
  try {
    return read();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    expect(message.find(name) != std::string_view::npos, "a message names the file", message);
    expect(message.size() < longest, "a message is short", message);
    expect(is_utf8(message), "a message is UTF-8", message);
    return {};
  }
}

/// Where a fuzzer writes what it has read; in memory where the system has such a place.
inline const std::filesystem::path& scratch() {
  const auto make = [] {
    if (std::filesystem::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 0);
    return TemporaryFolder();
  };
  static const TemporaryFolder folder = make();
  return folder.path();
}

inline std::span<const std::byte> bytes_of(const Tensor& tensor) { return {tensor.bytes(), tensor.spec().bytes()}; }
inline bool same(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && std::ranges::equal(bytes_of(a), bytes_of(b));
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace everyo::fuzz
