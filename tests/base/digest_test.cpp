#include "base/digest.h"

#include <gtest/gtest.h>

#include "everyo/error.h"

namespace everyo::base {
namespace {

std::string sha256_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

// FIPS 180-4's examples.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesAreTheWhole) {
  Sha256 digest;
  digest.update("a");
  digest.update("");
  digest.update("bc");
  EXPECT_EQ(digest.finish(), sha256_of("abc"));
  EXPECT_THROW(digest.update("d"), StateError);
  EXPECT_THROW(digest.finish(), StateError);
}

}  // namespace
}  // namespace everyo::base
