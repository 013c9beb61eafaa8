#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "everyo/data.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ArrayFile : public testing::Test {
 protected:
  std::string write(std::string_view content) {
    const std::string path = (folder.path() / "array").string();
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }
  template <class Load>
  std::string message_of(Load load, std::string_view content) {
    try {
      (void)load(write(content));
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }
  // No content is taken for whole when it was cut, and none does harm.
  template <class Load>
  void expect_robust(Load load, const std::string& whole) {
    EXPECT_EQ(message_of(load, whole), "no error");
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_NE(message_of(load, whole.substr(0, size)), "no error") << size;
    EXPECT_NE(message_of(load, whole + 'x'), "no error");
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
      std::string changed = whole;
      for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random() & 0xff);
      (void)message_of(load, changed);
    }
  }
  TemporaryFolder folder;
};

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

// What numpy.save writes: the header is padded so that the data begins at a multiple of 64.
std::string npy(std::string_view descr, std::string_view order, std::string_view shape, const std::string& data) {
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
                       ", 'shape': " + std::string(shape) + ", }";
  header.append(128 - 10 - header.size() - 1, ' ');
  header += '\n';
  return bytes({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<int>(header.size()), 0}) + header + data;
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST_F(ArrayFile, IdxImagesAndLabels) {
  const std::string images = bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 1, 2, 253, 254, 255});
  const Tensor x = load_idx(write(images));
  EXPECT_EQ(x.spec(), (Spec{uint8, {2, 1, 3}}));
  EXPECT_THAT(x.to_vector(), ElementsAre(0, 1, 2, 253, 254, 255));
  EXPECT_THAT(load_idx(write(bytes({0, 0, 0x0b, 1, 0, 0, 0, 2, 0xff, 0xfe, 1, 0}))).to_vector(), ElementsAre(-2, 256));
  EXPECT_EQ(load_idx(write(bytes({0, 0, 0x0d, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0}))).item(), 1.5);
  EXPECT_EQ(load_idx(write(bytes({0, 0, 9, 1, 0, 0, 0, 0}))).spec(), (Spec{int32, {0}}));
  expect_robust(load_idx, images);
}

TEST_F(ArrayFile, IdxMistakesAreNamed) {
  EXPECT_THAT(message_of(load_idx, bytes({0x1f, 0x8b, 8, 0})), HasSubstr("gunzip"));
  EXPECT_THAT(message_of(load_idx, bytes({0, 0, 7, 1, 0, 0, 0, 0})), HasSubstr("does not begin as an IDX file"));
  EXPECT_THAT(message_of(load_idx, bytes({0, 0, 8, 1, 0, 0, 0, 9, 1})),
              HasSubstr("shape (9,) needs 17 bytes, the file has 9"));
  const std::string huge = bytes({0, 0, 8, 4}) + std::string(16, '\xff');
  EXPECT_THAT(message_of(load_idx, huge), HasSubstr("beyond the file"));
  EXPECT_THROW(load_idx((folder.path() / "none").string()), FileError);
}

TEST_F(ArrayFile, NpyOfEveryDTypeAndOrder) {
  const std::string c = npy("<f4", "False", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(load_npy(write(c)).spec(), (Spec{float32, {2, 3}}));
  EXPECT_THAT(load_npy(write(c)).to_vector(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(load_npy(write(npy("<f4", "True", "(2, 3)", raw<float>({1, 4, 2, 5, 3, 6})))).to_vector(),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(load_npy(write(npy("<f8", "False", "()", raw<double>({0.1})))).item(), 0.1);
  EXPECT_THAT(load_npy(write(npy("<i8", "False", "(2,)", raw<std::int64_t>({-1, 7})))).to_vector(), ElementsAre(-1, 7));
  EXPECT_THAT(load_npy(write(npy("|b1", "False", "(3,)", bytes({0, 1, 2})))).to_vector(), ElementsAre(0, 1, 1));
  EXPECT_EQ(load_npy(write(npy("<f2", "False", "(0, 4)", ""))).spec(), (Spec{float16, {0, 4}}));
  expect_robust(load_npy, npy("<i4", "False", "(2,)", raw<std::int32_t>({1, 2})));
}

TEST_F(ArrayFile, NpyMistakesAreNamed) {
  EXPECT_THAT(message_of(load_npy, npy(">f4", "False", "(1,)", raw<float>({1}))), HasSubstr("'>f4'"));
  EXPECT_THAT(message_of(load_npy, npy("|O", "False", "(1,)", raw<float>({1}))), HasSubstr("'|O'"));
  EXPECT_THAT(message_of(load_npy, npy("<f4", "False", "(2,)", raw<float>({1}))),
              HasSubstr("shape (2,) needs 8 bytes, the file has 4"));
  EXPECT_THAT(message_of(load_npy, npy("<f4", "False", "(-2,)", raw<float>({1}))), HasSubstr("negative"));
  EXPECT_THAT(message_of(load_npy, npy("<f4", "False", "(9999999999, 9999999999)", "")), HasSubstr("2^59"));
  EXPECT_EQ(message_of(load_npy, npy("\xff\x1b", "False", "(1,)", raw<float>({1}))).find_first_of("\xff\x1b"),
            std::string::npos);  // a message is text
  EXPECT_THAT(message_of(load_npy, npy("<f4", "False", "(1,), 'shape': (1,)", raw<float>({1}))),
              HasSubstr("'shape' twice"));
  EXPECT_THAT(message_of(load_npy, "PK\x03\x04 a zip archive"), HasSubstr("does not begin as an .npy file"));
}

}  // namespace
}  // namespace everyo
