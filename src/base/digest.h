#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace everyo::base {

/// SHA-256 (FIPS 180-4) of bytes given piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// The digest as 64 hexadecimal digits, lower case. Nothing may be added afterwards: StateError.
  std::string finish();

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

/// The digest of one piece.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace everyo::base
