#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "everyo/archive.h"
#include "everyo/checkpoint.h"
#include "everyo/data.h"
#include "everyo/data/packed.h"
#include "everyo/data/text.h"
#include "everyo/error.h"
#include "everyo/io.h"
#include "support/temporary_folder.h"

// A small file of each format, cut at every byte: what is left is refused, in words that name the file.
namespace everyo {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Truncation : public testing::Test {
 protected:
  void write(std::string_view content) const {
    fs::remove(file);
    std::ofstream(file, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  /// The message of the error, or nothing.
  static std::string refusal(const std::function<void()>& read) {
    try {
      read();
    } catch (const FileError& error) {
      return error.what();
    }
    return {};
  }
  void expect_every_cut_is_refused(const std::function<void()>& read) const {
    const std::string whole = base::read_file(file, 1 << 20);
    ASSERT_EQ(refusal(read), "");
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write(std::string_view(whole).substr(0, size));
      EXPECT_THAT(refusal(read), HasSubstr(file.parent_path().string())) << "cut to " << size;
    }
  }
  TemporaryFolder folder;
  fs::path file = folder.path() / "file";
};

TEST_F(Truncation, OfASafetensorsFile) {
  save_safetensors(file, std::vector<NamedTensor>{{"a", Tensor::from<float>({1, 2})}, {"b", Tensor::scalar(3)}});
  expect_every_cut_is_refused([&] { (void)load_safetensors(file); });
}

TEST_F(Truncation, OfACheckpointsFiles) {
  StateTree state;
  const float one = 1;
  state["step"] = 3;
  state["w"] = StateArray::copy_of({float32, {1}}, std::as_bytes(std::span(&one, 1)));
  const fs::path checkpoint = folder.path() / "checkpoint";
  save_state(checkpoint, state);
  file = checkpoint / "state.safetensors";
  expect_every_cut_is_refused([&] { (void)load_state(checkpoint); });
  fs::remove_all(checkpoint);
  save_state(checkpoint, state);
  file = checkpoint / "manifest.json";
  // The line end behind the manifest says nothing; cut there, it is whole.
  std::string manifest = base::read_file(file, 1 << 20);
  ASSERT_EQ(manifest.back(), '\n');
  manifest.pop_back();
  write(manifest);
  expect_every_cut_is_refused([&] { (void)load_state(checkpoint); });
}

TEST_F(Truncation, OfAnArchive) {
  save_archive(file, {.class_name = "Net", .parameters = {{"w", Tensor::from<float>({1, 2})}}});
  expect_every_cut_is_refused([&] { (void)load_archive(file); });
}

TEST_F(Truncation, OfAPackedDataSet) {
  (void)pack(ArrayDataset(Tensor::zeros({3, 2}), Tensor::zeros({3}, int64)), file.string());
  expect_every_cut_is_refused([&] { (void)PackedDataset(file.string()); });
}

// Settings, manifests, a run's configuration.
TEST_F(Truncation, OfJson) {
  write(R"({"a": [1, -2.5e3, null], "b": {"c": "\u00fc"}})");
  expect_every_cut_is_refused([&] { (void)base::parse_json(base::read_file(file, 1000), file.string()); });
}

// A text is whole wherever it is cut between two characters.
TEST_F(Truncation, OfATextIsRefusedWithinACharacter) {
  const std::string text = "a\xc3\xbc\xe2\x82\xac";
  for (std::size_t size = 1; size < text.size(); ++size) {
    write(text.substr(0, size));
    std::string message = "none";
    try {
      (void)Vocabulary::characters(read_text(file.string()));
    } catch (const ValueError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr(size == 1 || size == 3 ? "none" : "no character of UTF-8")) << size;
  }
}

TEST_F(Truncation, OfAnIdxFile) {
  write(std::string("\0\0\x0b\2\0\0\0\2\0\0\0\1\0\1\xff\xff", 16));
  expect_every_cut_is_refused([&] { (void)load_idx(file.string()); });
}

TEST_F(Truncation, OfAnNpyFile) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  header.append(117 - header.size(), ' ');
  write(std::string("\x93NUMPY\1\0v\0", 10) + header + "\n" + std::string(8, '\1'));
  expect_every_cut_is_refused([&] { (void)load_npy(file.string()); });
}

// A text of numbers does not say how long it is. A cut inside a row is refused when a field is missing; one inside the
// last number leaves a shorter number, and one behind a row a shorter table. The rows before the cut are what they
// were.
TEST_F(Truncation, OfACsvFileIsRefusedOrLeavesTheRowsBeforeIt) {
  const std::string text = "a,b\n1,-20.5\n3e2,4\n";
  const std::map<std::string, std::vector<double>> whole_rows = {
      {"a,b\n1,-2", {1, -2}},       {"a,b\n1,-20", {1, -20}},       {"a,b\n1,-20.", {1, -20}},
      {"a,b\n1,-20.5", {1, -20.5}}, {"a,b\n1,-20.5\n", {1, -20.5}}, {"a,b\n1,-20.5\n3e2,4", {1, -20.5, 300, 4}}};
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string cut = text.substr(0, size);
    write(cut);
    Table table;
    const std::string message = refusal([&] { table = read_csv(file.string()); });
    if (const auto found = whole_rows.find(cut); found != whole_rows.end()) {
      EXPECT_EQ(message, "") << cut;
      EXPECT_EQ(table.values, found->second) << cut;
    } else {
      EXPECT_THAT(message, HasSubstr(file.string() + ", line ")) << cut;
    }
  }
}

}  // namespace
}  // namespace everyo
