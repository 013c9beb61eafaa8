#include "base/digest.h"

#include <openssl/evp.h>

#include <array>

#include "everyo/error.h"

namespace everyo::base {
namespace {

struct Free {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};

void check(int result) {
  if (result != 1) throw Error("[sha256] the cryptographic library failed; is its SHA-256 disabled?");
}

}  // namespace

struct Sha256::Engine {
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : engine_(std::make_unique<Engine>()) {
  check(engine_->context != nullptr ? 1 : 0);
  check(EVP_DigestInit_ex(engine_->context.get(), EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  if (engine_ == nullptr) throw StateError("[sha256] update after finish; begin a new digest");
  check(EVP_DigestUpdate(engine_->context.get(), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  if (engine_ == nullptr) throw StateError("[sha256] finish was called before; begin a new digest");
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(engine_->context.get(), digest.data(), nullptr));
  engine_.reset();
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.finish();
}

}  // namespace everyo::base
