#include "everyo/data/packed.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/digest.h"
#include "data/damaged.h"
#include "data/numbered.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PackedFile : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const char* name = "set.pack") const { return (folder.path() / name).string(); }
  [[nodiscard]] std::string content() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(std::string_view bytes) const {
    std::filesystem::remove(path());
    std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  [[nodiscard]] std::string message_of(std::string_view bytes) const {
    write(bytes);
    try {
      const PackedDataset data(path());
      static_cast<void>(data.range(0, data.size()));
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }
  TemporaryFolder folder;
};

void expect_equal(const Batch& a, const Batch& b) {
  for (const auto& [x, y] : {std::pair(a.features, b.features), {a.targets, b.targets}}) {
    ASSERT_EQ(x.spec(), y.spec());
    EXPECT_EQ(std::memcmp(x.bytes(), y.bytes(), x.spec().bytes()), 0);
  }
}

TEST_F(PackedFile, RowsMayHaveNothingInThem) {
  for (const auto& [features, targets] :
       {std::pair(Shape{3}, Shape{3, 0}), {Shape{3, 0}, Shape{3}}, {Shape{3, 0}, Shape{3, 0}}}) {
    const ArrayDataset source(Tensor::ones(features, uint8), Tensor::ones(targets));
    const PackedInfo info = pack(source, path());
    EXPECT_EQ(info.bytes, std::filesystem::file_size(path()));
    const PackedDataset data(path());
    data.verify();
    expect_equal(data.range(0, 3), source.range(0, 3));
  }
}

TEST_F(PackedFile, GivesTheRowsThatWerePacked) {
  const ArrayDataset source = numbered(100);
  const PackedInfo info = pack(source, path());
  EXPECT_EQ(info.bytes, 256 + 832 + 800u);  // 100 rows of two float32, to the next multiple of 64; 100 labels
  EXPECT_EQ(info.bytes, std::filesystem::file_size(path()));
  const PackedDataset data(path());
  EXPECT_EQ(data.size(), 100);
  EXPECT_EQ(data.info().features, source.features.spec());
  EXPECT_EQ(data.info().features_digest, base::sha256({source.features.bytes(), source.features.spec().bytes()}));
  expect_equal(data.range(0, 100), source.range(0, 100));
  expect_equal(data.range(17, 5), source.range(17, 5));
  const std::vector<std::int64_t> some{99, 0, 42, 42};
  expect_equal(data.rows(some), source.rows(some));
  EXPECT_EQ(data.rows({}).features.shape(), (Shape{0, 2}));
  data.verify();
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{100})), ShapeError);
  EXPECT_THROW(static_cast<void>(data.rows(std::vector<std::int64_t>{-1})), ShapeError);
  EXPECT_THROW(static_cast<void>(data.range(98, 3)), ShapeError);

  const LoaderOptions options{.batch = 8, .shuffle = true, .seed = 2, .workers = 2};
  Loader packed(data, options), plain(source, options);
  EXPECT_EQ(rest_of_epoch(packed), rest_of_epoch(plain));
}

TEST_F(PackedFile, HoldsEveryDTypeAndShape) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean})
    for (const Shape& shape : {Shape{3}, {3, 0}, {3, 5}, {3, 2, 2, 2, 1, 1, 1, 3}}) {
      const ArrayDataset source(Tensor::full(shape, 1, dtype), Tensor::full({3, 2}, 0, dtype));
      pack(source, path());
      const PackedDataset data(path());
      data.verify();
      expect_equal(data.range(0, 3), source.range(0, 3));
    }
}

TEST_F(PackedFile, IsWrittenInBlocks) {
  const Tensor features = Tensor::empty({3000, 512});  // 6 MB, more than a block
  float next = 0;
  for (float& value : features.data<float>()) value = next += 1;
  const ArrayDataset source(features, Tensor::zeros({3000}, uint8));
  pack(source, path());
  expect_equal(PackedDataset(path()).range(0, 3000), source.range(0, 3000));
}

TEST_F(PackedFile, MayBeReplacedWhileItIsOpen) {
  pack(numbered(10), path());
  const PackedDataset before(path());
  pack(numbered(20), path());
  EXPECT_EQ(labels_of(before.range(8, 2)), (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(PackedDataset(path()).size(), 20);
}

/// Gives rows of another shape from some row on.
class Uneven3 final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const noexcept override { return std::int64_t{1} << 20; }
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    return {Tensor::zeros({count, indices[0] == 0 ? 2 : 3}), Tensor::zeros({count})};
  }
};

TEST_F(PackedFile, IsNotWrittenFromRowsThatAreNotThoseAskedFor) {
  EXPECT_THROW(pack(SubsetDataset(Damaged(), {0, 9}), path()), ShapeError);
  EXPECT_THROW(pack(SubsetDataset(Damaged(), {9, 0}), path()), ShapeError);
  for (const Batch& wrong : wrong_batches()) EXPECT_THROW(pack(Wrong(wrong), path()), ShapeError);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(PackedFile, AFailureLeavesTheOldFile) {
  pack(numbered(10), path());
  const std::string old = content();
  EXPECT_THROW(pack(Uneven3(), path()), ShapeError);
  EXPECT_EQ(content(), old);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "something was left behind";
  EXPECT_THROW(pack(numbered(0), path("none")), ValueError);
  EXPECT_THROW(pack(numbered(1), path("no/such/folder")), FileError);
  EXPECT_THROW(pack(numbered(1), folder.path().string()), FileError);
}

TEST_F(PackedFile, EveryCutAndEveryChangeOfTheHeaderIsRefused) {
  pack(numbered(3), path());
  const std::string whole = content();
  ASSERT_EQ(message_of(whole), "no error");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(message_of(whole.substr(0, size)), "no error") << size;
  EXPECT_THAT(message_of(whole + 'x'), HasSubstr("need 344 bytes, the file has 345"));
  for (std::size_t at = 0; at < 256; ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    EXPECT_NE(message_of(changed), "no error") << at;
  }
  EXPECT_THAT(message_of("1,2,3\n"), HasSubstr("'everyo pack' makes one"));
  EXPECT_THAT(message_of(""), HasSubstr("does not begin as"));
  EXPECT_THROW(PackedDataset(path("none")), FileError);
  EXPECT_THROW(PackedDataset(folder.path().string()), FileError);
}

TEST_F(PackedFile, AHostileHeaderWithTheRightChecksumIsRefused) {
  pack(numbered(3), path());
  const std::string whole = content();
  const auto message = [&](std::size_t at, auto value) {
    std::string changed = whole;
    std::memcpy(changed.data() + at, &value, sizeof value);
    const std::string digest = base::sha256(std::as_bytes(std::span(changed).first(224)));
    for (std::size_t i = 0; i < 32; ++i)
      changed[224 + i] = static_cast<char>(std::stoi(digest.substr(2 * i, 2), nullptr, 16));
    return message_of(changed);
  };
  EXPECT_EQ(message(8, std::uint32_t{1}), "no error") << "the checksum is made as it should be";
  EXPECT_THAT(message(8, std::uint32_t{2}), HasSubstr("its format version is 2; this library reads version 1"));
  EXPECT_THAT(message(12, std::uint32_t{0}), HasSubstr("dtype number 0"));
  EXPECT_THAT(message(16, std::uint32_t{9}), HasSubstr("dtype number 9"));
  EXPECT_THAT(message(20, std::uint32_t{0}), HasSubstr("0 dimensions"));
  EXPECT_THAT(message(24, std::uint32_t{9}), HasSubstr("9 dimensions"));
  EXPECT_THAT(message(32, std::int64_t{-3}), HasSubstr("negative"));
  EXPECT_THAT(message(32, std::int64_t{4}), HasSubstr("differ in their number of samples"));
  EXPECT_THAT(message(40, std::int64_t{1} << 62), HasSubstr("2^59"));
  EXPECT_THAT(message(40, std::int64_t{1} << 57), HasSubstr("the file has 344"));
  EXPECT_THAT(message(40, std::int64_t{17}), HasSubstr("the file has 344"));
}

TEST_F(PackedFile, DamagedDataIsFoundWhereItWouldDoHarmAndByVerify) {
  pack(ArrayDataset(Tensor::ones({3, 2}), Tensor::ones({3}, boolean)), path());
  std::string changed = content();
  changed.back() = 2;
  EXPECT_THAT(message_of(changed), HasSubstr("neither 0 nor 1"));
  for (const std::size_t at : {std::size_t{256}, changed.size() - 1}) {
    changed = content();
    changed.back() = 1;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    write(changed);
    const PackedDataset data(path());
    EXPECT_THROW(data.verify(), FileError);
  }
}

}  // namespace
}  // namespace everyo
