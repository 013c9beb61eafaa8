#include "io/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t most = 1 << 20;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string refusal(std::string_view archive) {
  try {
    const io::ZipReader zip(bytes_of(archive), "the archive");
    for (const std::string& name : zip.names()) (void)zip.extract(name, most);
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), StartsWith("the archive: "));
    return error.what();
  }
  return "no error";
}

// Two entries, "a" stored and "b/c" deflated.
std::string small() {
  io::ZipWriter zip;
  zip.add("a", bytes_of("stored"), false);
  zip.add("b/c", bytes_of(std::string(1000, 'x')), true);
  return std::move(zip).finish();
}

TEST(Zip, EntriesComeBack) {
  const std::string archive = small();
  EXPECT_LT(archive.size(), 300u);
  const io::ZipReader zip(bytes_of(archive), "");
  EXPECT_THAT(zip.names(), ElementsAre("a", "b/c"));
  EXPECT_EQ(zip.extract("a", most), "stored");
  EXPECT_EQ(zip.extract("b/c", most), std::string(1000, 'x'));
  EXPECT_TRUE(zip.contains("a"));
  EXPECT_FALSE(zip.contains("b"));
  EXPECT_THROW((void)zip.extract("b", most), FileError);
  EXPECT_THROW((void)zip.extract("b/c", 999), FileError);
  EXPECT_EQ(archive, small());
  EXPECT_EQ(refusal(io::ZipWriter().finish()), "no error");
}

TEST(Zip, ACommentAtTheEndIsPassedOver) {
  std::string archive = small();
  archive[archive.size() - 2] = 3;
  EXPECT_EQ(refusal(archive + "PK\5"), "no error");
  EXPECT_NE(refusal(archive + "PK"), "no error");
}

TEST(Zip, EveryTruncationAndAlmostEveryFlippedBitIsNoticed) {
  const std::string whole = small();
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "no error") << size;
  // Times, versions and attributes say nothing of the content; all else does.
  int unnoticed = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {1, 128}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      unnoticed += refusal(changed) == "no error" ? 1 : 0;
    }
  EXPECT_LT(unnoticed, static_cast<int>(whole.size()));
}

// The archive with a 32-bit number of the first entry of its directory changed.
std::string with_directory_number(std::size_t at, std::uint32_t value) {
  std::string archive = small();
  const std::size_t entry = archive.find("PK\1\2");
  for (std::size_t i = 0; i < 4; ++i) archive[entry + at + i] = static_cast<char>(value >> (8 * i) & 0xff);
  return archive;
}

TEST(Zip, HostileSizesAndPlacesAreRefused) {
  constexpr std::size_t stored_size = 20, full_size = 24, offset = 42;
  EXPECT_THAT(refusal(with_directory_number(full_size, 7)), HasSubstr("cannot make 7 bytes of 6"));
  EXPECT_THAT(refusal(with_directory_number(full_size, 0xfffffffe)), HasSubstr("cannot make"));
  EXPECT_THAT(refusal(with_directory_number(stored_size, 0xfffffffe)), HasSubstr("cannot make"));
  EXPECT_THAT(refusal(with_directory_number(full_size, 0xffffffff)), HasSubstr("ZIP64"));
  EXPECT_THAT(refusal(with_directory_number(offset, 0xfffffff0)), HasSubstr("is damaged"));
  EXPECT_THAT(refusal(with_directory_number(offset, 37)), HasSubstr("is damaged"));
  EXPECT_THAT(refusal(with_directory_number(8, 1)), HasSubstr("encrypted"));
  EXPECT_THAT(refusal(with_directory_number(8, 99 << 16)), HasSubstr("method 99"));
  EXPECT_THAT(refusal(with_directory_number(16, 1)), HasSubstr("checksum"));
}

TEST(Zip, EntriesMayNotOverlapNorShareAName) {
  // The second entry's line of the directory twice: two names of one place.
  io::ZipWriter one;
  one.add("a", bytes_of("content"), false);
  std::string archive = std::move(one).finish();
  const std::size_t begin = archive.find("PK\1\2"), end = archive.find("PK\5\6");
  const std::string line = archive.substr(begin, end - begin);
  archive.insert(end, line);
  archive[end + line.size() + 8] = archive[end + line.size() + 10] = 2;
  archive[end + line.size() + 12] = static_cast<char>(2 * line.size());
  EXPECT_THAT(refusal(archive), HasSubstr("there twice"));

  io::ZipWriter outer;  // an archive within an entry, whose local header another entry claims
  io::ZipWriter inner;
  inner.add("b", bytes_of("content"), false);
  outer.add("a", bytes_of(std::move(inner).finish()), false);
  outer.add("b", bytes_of("content"), false);
  std::string overlapping = std::move(outer).finish();
  const std::size_t second = overlapping.rfind("PK\1\2");
  overlapping[second + 42] = static_cast<char>(overlapping.find("PK\3\4", 1));
  EXPECT_THAT(refusal(overlapping), HasSubstr("overlap"));
}

TEST(Zip, NamesArePlainPaths) {
  for (const std::string& name : {std::string("/etc"), std::string("../up"), std::string("a/../b"), std::string("."),
                                  std::string("a\\b"), std::string(), std::string("a\0b", 3), std::string("a/..")}) {
    io::ZipWriter zip;
    EXPECT_THROW(zip.add(name, {}, false), ValueError) << name;
  }
  std::string archive = small();
  for (std::size_t at = archive.find("b/c"); at != std::string::npos; at = archive.find("b/c", at + 1))
    archive.replace(at, 3, "../");
  EXPECT_THAT(refusal(archive), HasSubstr("no plain path"));
  io::ZipWriter twice;
  twice.add("a", {}, false);
  EXPECT_THROW(twice.add("a", {}, false), ValueError);
}

}  // namespace
}  // namespace everyo
