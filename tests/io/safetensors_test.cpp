#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/files.h"
#include "everyo/error.h"
#include "everyo/io.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t most = 1 << 20;
const char* const odd_name = "\u00fcn\u00ef \"q\"\n\x01/";

fs::path fixture(std::string_view name) { return fs::path(std::getenv("EVERYO_SOURCE_DIR")) / "tests" / "io" / name; }

/// What make_safetensors.py writes into all_dtypes.safetensors.
std::vector<NamedTensor> all_dtypes() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  using I64 = std::numeric_limits<std::int64_t>;
  return {{"i64", Tensor::from<std::int64_t>({I64::min(), I64::max()})},
          {"f64", Tensor::from<double>({0.1, -static_cast<double>(infinity)}, {1, 2})},
          {"f32", Tensor::from<float>({1.5f, -2.0f, 3.25f, 0.0f, -0.0f, infinity}, {2, 3})},
          {"i32", Tensor::from<std::int32_t>({-1, 2}, {2, 1})},
          {"bf16", Tensor::from<BFloat16>({to_bfloat16(1), to_bfloat16(-3), to_bfloat16(0.5f)})},
          {"f16", Tensor::from<Float16>({to_float16(65504), to_float16(6e-8f)})},
          {"u8", Tensor::from<std::uint8_t>({0, 255, 7})},
          {"bool", Tensor::from<bool>({true, false, true})},
          {"scalar", Tensor::scalar(3)},
          {"empty", Tensor::zeros({2, 0, 3})},
          {odd_name, Tensor::from<std::uint8_t>({9})}};
}

/// Unlike write_file it waits for no disk, for tests that write thousands.
void write_quickly(const fs::path& path, std::string_view content) {
  fs::remove(path);  // some file systems flush a file that is truncated and written again
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

void expect_same(std::span<const NamedTensor> loaded, std::span<const NamedTensor> expected) {
  ASSERT_EQ(loaded.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const auto found = std::ranges::find(loaded, name, &NamedTensor::first);
    ASSERT_NE(found, loaded.end()) << name;
    ASSERT_EQ(found->second.spec(), tensor.spec()) << name;
    EXPECT_EQ(std::memcmp(found->second.bytes(), tensor.bytes(), tensor.spec().bytes()), 0) << name;
  }
}

class Safetensors : public testing::Test {
 protected:
  /// A file of this header and as many bytes of data; the size before the header may lie.
  void write(std::string_view json, std::size_t data_bytes = 0, std::int64_t claimed = -1) const {
    const std::uint64_t size = claimed < 0 ? json.size() : static_cast<std::uint64_t>(claimed);
    std::string file(8, '\0');
    std::memcpy(file.data(), &size, 8);
    file += json;
    file.append(data_bytes, '\1');
    write_quickly(path, file);
  }
  /// The message with which reading fails.
  [[nodiscard]] std::string refusal() const {
    try {
      load_safetensors(path);
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      return error.what();
    }
    return "nothing was thrown";
  }
  TemporaryFolder temporary;
  const fs::path folder = temporary.path(), path = folder / "a.safetensors";
};

TEST_F(Safetensors, ReadsWhatTheFormatsOwnLibraryWrote) {
  const SafetensorsFile file = load_safetensors(fixture("all_dtypes.safetensors"));
  expect_same(file.tensors, all_dtypes());
  EXPECT_EQ(file.metadata, (Metadata{{"format", "np"}}));
  EXPECT_TRUE(load_safetensors(fixture("nothing.safetensors")).tensors.empty());
}

TEST_F(Safetensors, WritesTheSameBytesAsTheFormatsOwnLibrary) {
  save_safetensors(path, all_dtypes(), {{"format", "np"}});
  EXPECT_EQ(base::read_file(path, most), base::read_file(fixture("all_dtypes.safetensors"), most));
  save_safetensors(path, {});
  EXPECT_EQ(base::read_file(path, most), base::read_file(fixture("nothing.safetensors"), most));
}

TEST_F(Safetensors, RoundTripsMetadataAndViews) {
  const Metadata metadata{{"", "empty key"}, {"a", "\u00e4\n\""}, {"b", ""}};
  const std::vector<NamedTensor> tensors{{"", Tensor::ones({3})}};
  save_safetensors(path, tensors, metadata);
  const SafetensorsFile file = load_safetensors(path);
  EXPECT_EQ(file.metadata, metadata);
  expect_same(file.tensors, tensors);
}

TEST_F(Safetensors, HasDataInsideAMetaScopeToo) {
  MetaScope meta;
  const SafetensorsFile file = load_safetensors(fixture("all_dtypes.safetensors"));
  for (const auto& [name, tensor] : file.tensors) EXPECT_FALSE(tensor.is_meta()) << name;
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const Tensor one = Tensor::ones({1});
  const auto save = [&](std::vector<NamedTensor> tensors) { save_safetensors(path, tensors); };
  EXPECT_THROW(save({{"a", one}, {"b", one}, {"a", one}}), ValueError);
  EXPECT_THROW(save({{"__metadata__", one}}), ValueError);
  EXPECT_THROW(save({{"\xff", one}}), ValueError);
  EXPECT_THROW(save({{"a", Tensor()}}), StateError);
  EXPECT_THROW(save({{"a", Tensor::meta({float32, {2}})}}), StateError);
  EXPECT_THROW(save_safetensors(path, {}, {{"k", "\xc3"}}), ValueError);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Safetensors, MissingFileIsItsOwnKind) {
  try {
    load_safetensors(path);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file_not_found);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("not found")));
  }
}

TEST_F(Safetensors, FileCutAnywhereIsRefused) {
  const std::string whole = base::read_file(fixture("all_dtypes.safetensors"), most);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_quickly(path, std::string_view(whole).substr(0, size));
    EXPECT_THROW(load_safetensors(path), FileError) << size;
  }
  write_quickly(path, whole + "x");
  EXPECT_THAT(refusal(), HasSubstr("the file has"));
}

TEST_F(Safetensors, HostileSizesAreCheckedBeforeAllocating) {
  write("{}", 0, std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
  write("{}", 0, 1000);
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
  write(R"({"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})", 4);
  EXPECT_THAT(refusal(), HasSubstr("'a' lies at"));
  write(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})");  // 2^61 elements: 2^64 bytes
  EXPECT_THAT(refusal(), HasSubstr("2^59"));
  write(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})");
  EXPECT_THAT(refusal(), HasSubstr("2^59"));
  write(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1);
  EXPECT_THAT(refusal(), HasSubstr("no file can reach"));
  write(R"({"a":{"dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,1]}})", 1);
  EXPECT_THROW(load_safetensors(path), FileError);
  write(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1);
  EXPECT_THAT(refusal(), HasSubstr("more than 8"));
}

TEST_F(Safetensors, PlacesMustFillTheFile) {
  const auto two = [](int a0, int a1, int b0, int b1) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[)" + std::to_string(a0) + "," + std::to_string(a1) +
           R"(]},"b":{"dtype":"U8","shape":[2],"data_offsets":[)" + std::to_string(b0) + "," + std::to_string(b1) +
           "]}}";
  };
  write(two(0, 2, 2, 4), 4);
  EXPECT_EQ(load_safetensors(path).tensors.size(), 2u);
  write(two(2, 4, 0, 2), 4);
  EXPECT_EQ(load_safetensors(path).tensors.front().first, "b");  // ordered by place
  for (const std::string& json : {two(0, 2, 1, 3), two(0, 2, 0, 2), two(0, 2, 3, 5), two(1, 3, 3, 5), two(2, 0, 2, 4),
                                  two(0, 4, 4, 8), two(0, 1, 1, 3)}) {
    write(json, 4);
    EXPECT_THROW(load_safetensors(path), FileError) << json;
  }
  write(two(0, 2, 2, 4), 5);
  EXPECT_THROW(load_safetensors(path), FileError);
}

TEST_F(Safetensors, HeadersOfAnotherFormAreRefused) {
  const std::vector<std::string> headers{
      "",
      "{",
      "[]",
      "null",
      " {}",
      "{}x",
      "{\"a\":1}",
      R"({"a":null})",
      R"({"a":{}})",
      R"({"a":[]})",
      R"({"a":{"dtype":"U8","shape":[1]}})",
      R"({"a":{"dtype":"U8","data_offsets":[0,1]}})",
      R"({"a":{"shape":[1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})",
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})",
      R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})",
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
      R"({"__metadata__":{"k":1},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      R"({"__metadata__":{"k":"1","k":"2"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      R"({"__metadata__":{"k":{}},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      R"({"__metadata__":[],"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
  };
  for (const std::string& json : headers) {
    write(json, 1);
    EXPECT_THROW(load_safetensors(path), FileError) << json;
  }
  write(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_NO_THROW(load_safetensors(path));
}

TEST_F(Safetensors, DeepOrLongHeadersNeitherCrashNorFloodTheMessage) {
  write(std::string(200'000, '['), 0);
  EXPECT_LT(refusal().size(), 1000u);
  write("{\"a\":" + std::string(200'000, '{'), 0);
  EXPECT_LT(refusal().size(), 1000u);
  write("{\"" + std::string(200'000, 'n') + "\":1}", 0);
  EXPECT_LT(refusal().size(), 1000u);
  std::string numbers = R"({"a":{"dtype":"U8","shape":[)";
  for (int i = 0; i < 100'000; ++i) numbers += "1,";
  write(numbers + R"(1],"data_offsets":[0,1]}})", 1);
  EXPECT_THAT(refusal(), HasSubstr("more than 8"));
}

TEST_F(Safetensors, AMessageIsTextWhateverTheFileHolds) {
  for (const std::string& json : {std::string("{\"\xff\""), std::string("{\"a\xc3(\":1}"), std::string("{\x1b[31m}"),
                                  "{\"" + std::string(398, 'n') + "\u00fc\":1}"}) {
    write(json);
    EXPECT_NO_THROW((void)nlohmann::json(refusal()).dump()) << json;  // it takes UTF-8 only
    EXPECT_EQ(refusal().find('\x1b'), std::string::npos);
  }
}

TEST_F(Safetensors, BoolsAreZeroOrOne) {
  write(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  EXPECT_TRUE(load_safetensors(path).tensors[0].second.data<bool>()[1]);
  std::string file = base::read_file(path, most);
  file.back() = '\2';
  write_quickly(path, file);
  EXPECT_THAT(refusal(), HasSubstr("other than 0 and 1"));
}

/// Damaged files are read or refused; whatever happens, nothing else does (the sanitized build looks on).
TEST_F(Safetensors, RandomDamageIsReadOrRefused) {
  const std::string whole = base::read_file(fixture("all_dtypes.safetensors"), most);
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  std::mt19937 engine(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string file = whole;
    const std::size_t reach = i % 3 == 0 ? 8 : static_cast<std::size_t>(header) + 8;
    for (std::size_t hits = 1 + engine() % 4; hits > 0; --hits) {
      const std::size_t at = engine() % reach;
      switch (engine() % 4) {
        case 0: file[at] = static_cast<char>(engine()); break;
        case 1: file[at] = "0123456789[]{},:\""[engine() % 17]; break;
        case 2: file.erase(at, 1 + engine() % 5); break;
        default: file.insert(at, file, engine() % reach, engine() % 20);
      }
    }
    write_quickly(path, file);
    try {
      load_safetensors(path);
    } catch (const FileError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST_F(Safetensors, RandomBytesAreRefused) {
  std::mt19937 engine(2);
  for (int i = 0; i < 1000; ++i) {
    std::string file(engine() % 200, '\0');
    for (char& byte : file) byte = static_cast<char>(engine());
    if (i % 2 == 0 && file.size() > 9) {  // let it get past the first two checks
      const std::uint64_t size = engine() % (file.size() - 8);
      std::memcpy(file.data(), &size, 8);
      file[8] = '{';
    }
    write_quickly(path, file);
    EXPECT_THROW(load_safetensors(path), FileError);
  }
}

}  // namespace
}  // namespace everyo
