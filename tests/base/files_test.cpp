#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "everyo/error.h"
#include "support/temporary_folder.h"

namespace everyo::base {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  TemporaryFolder temporary;
  const fs::path folder = temporary.path();
};

template <class F>
ErrorKind kind_of(F&& call, const fs::path& named) {
  try {
    call();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(named.string()));
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::backend;
}

TEST_F(Files, WrittenContentIsReadBack) {
  const fs::path path = folder / "a.bin";
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  write_file(path, content);
  EXPECT_EQ(read_file(path, 1 << 20), content);
  EXPECT_EQ(count(), 1u);  // nothing beside it
  const auto bytes = std::as_bytes(std::span(content));
  const std::array parts{bytes.first(10), bytes.subspan(10, 0), bytes.subspan(10)};
  write_file(path, parts);
  EXPECT_EQ(read_file(path, content.size()), content);
  write_file(path, "");
  EXPECT_EQ(read_file(path, 0), "");
}

TEST_F(Files, LimitIsKept) {
  const fs::path path = folder / "a";
  write_file(path, "12345");
  EXPECT_EQ(read_file(path, 5), "12345");
  EXPECT_EQ(kind_of([&] { read_file(path, 4); }, path), ErrorKind::serialization);
}

TEST_F(Files, MissingIsItsOwnKind) {
  const fs::path path = folder / "none" / "a";
  EXPECT_EQ(kind_of([&] { read_file(path, 10); }, path), ErrorKind::file_not_found);
  EXPECT_EQ(kind_of([&] { write_file(path, "x"); }, path), ErrorKind::file_not_found);
}

TEST_F(Files, WhatIsNoFileIsRefused) {
  EXPECT_EQ(kind_of([&] { read_file(folder, 10); }, folder), ErrorKind::serialization);
  EXPECT_EQ(kind_of([&] { write_file(folder, "x"); }, folder), ErrorKind::serialization);
  EXPECT_EQ(kind_of([&] { read_file("/dev/zero", 10); }, "/dev/zero"), ErrorKind::serialization);
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(kind_of([&] { read_file(pipe, 10); }, pipe), ErrorKind::serialization);  // and does not wait for a writer
}

TEST_F(Files, FailedWriteKeepsTheOldContent) {
  const fs::path path = folder / "a";
  write_file(path, "old");
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_IGN);
        rlimit limit;
        limit.rlim_cur = limit.rlim_max = 1000;  // as a full disk would
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
          write_file(path, std::string(5000, 'x'));
        } catch (const FileError&) {
          std::exit(0);
        }
        std::exit(1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EQ(read_file(path, 10), "old");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, ReadersSeeOldOrNewNeverHalf) {
  const fs::path path = folder / "a";
  const std::string first(200'000, 'a'), second(100'000, 'b');
  write_file(path, first);
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) write_file(path, i % 2 == 0 ? second : first);
  });
  for (int i = 0; i < 200; ++i) {
    const std::string content = read_file(path, 1 << 20);
    EXPECT_TRUE(content == first || content == second);
  }
  writer.join();
}

TEST_F(Files, PartsAreReadAtTheirPlace) {
  const fs::path path = folder / "a";
  write_file(path, "0123456789");
  const InputFile file(path);
  EXPECT_EQ(file.size(), 10u);
  std::string part(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(kind_of([&] { file.read(7, std::as_writable_bytes(std::span(part))); }, path), ErrorKind::serialization);
}

TEST_F(Files, FileThatShrinksIsTruncated) {
  const fs::path path = folder / "a";
  write_file(path, "0123456789");
  const InputFile file(path);
  ASSERT_EQ(truncate(path.c_str(), 4), 0);
  std::string part(10, ' ');
  EXPECT_EQ(kind_of([&] { file.read(0, std::as_writable_bytes(std::span(part))); }, path), ErrorKind::serialization);
}

TEST_F(Files, DirectoriesAreMade) {
  const fs::path path = folder / "a" / "b" / "c";
  make_directories(path);
  make_directories(path);
  EXPECT_TRUE(fs::is_directory(path));
  write_file(folder / "file", "x");
  kind_of([&] { make_directories(folder / "file"); }, folder / "file");
  kind_of([&] { make_directories(folder / "file" / "below"); }, folder / "file" / "below");
}

TEST_F(Files, ADeviceIsNotReplaced) {
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write_file(pipe, "text"), FileError);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace everyo::base
