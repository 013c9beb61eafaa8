#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "everyo/error.h"
#include "everyo/io.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Text, IsReplacedAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "settings.json";
  save_text(path, "a longer text\n");
  save_text(path, "new\n");
  EXPECT_EQ(content_of(path), "new\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Text, AFailureNamesTheFile) {
  const TemporaryFolder folder;
  try {
    save_text(folder.path() / "gone" / "settings.json", "text");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("settings.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace everyo
