#include "everyo/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/npy.h"
#include "everyo/error.h"
#include "io/zip.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class Archive : public testing::Test {
 protected:
  void write(std::string_view content) const {
    fs::remove(path);
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  /// An archive of these parts.
  void write(const std::string& manifest_text, const std::string& npz_bytes) const {
    io::ZipWriter zip;
    zip.add("manifest.json", bytes_of(manifest_text), true);
    zip.add("parameters.npz", bytes_of(npz_bytes), true);
    write(std::move(zip).finish());
  }
  [[nodiscard]] std::string refusal() const {
    try {
      (void)load_archive(path);
    } catch (const FileError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::serialization);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      return error.what();
    }
    return "no error";
  }
  static std::string npz_of(std::string_view name, const Tensor& tensor) {
    std::string npy = data::npy_header(tensor.spec());
    npy.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.spec().bytes());
    io::ZipWriter npz;
    npz.add(name, bytes_of(npy), false);
    return std::move(npz).finish();
  }
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.evo";
  const json manifest = json::parse(R"({"format_version": 1, "architecture": {"class_name": "Net"},
                                        "parameters": {"w": {"shape": [2], "dtype": "float32"}}})");
  const std::string npz = npz_of("w.npy", Tensor::from<float>({1, 2}));
};

// model.evo as Python writes it: zipfile and numpy.savez, as the earlier library did (make_archive.py).
TEST_F(Archive, OfTheEarlierLibraryIsRead) {
  const ModelArchive archive = load_archive(fs::path(std::getenv("EVERYO_SOURCE_DIR")) / "tests" / "io" / "model.evo");
  EXPECT_EQ(archive.class_name, "Sequential");
  EXPECT_EQ(json::parse(archive.config)["layers"][0]["class_name"], "Linear");
  EXPECT_EQ(json::parse(archive.metadata), json({{"note", "f\u00fcr alle"}}));
  EXPECT_EQ(archive.everyo_version, "0.2.0");
  EXPECT_EQ(archive.created_at, "2025-03-01T12:00:00+00:00");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : archive.parameters) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.running_mean", "1.num_batches_tracked"));
  EXPECT_EQ(archive.parameters[0].second.spec(), (Spec{float32, {2, 3}}));
  EXPECT_THAT(archive.parameters[0].second.to_vector(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(archive.parameters[1].second.spec(), (Spec{float16, {3}}));
  EXPECT_EQ(archive.parameters[2].second.spec(), (Spec{float64, {1}}));
  EXPECT_EQ(archive.parameters[3].second.spec(), (Spec{int64, {}}));
  EXPECT_EQ(archive.parameters[3].second.item(), 7);
}

TEST_F(Archive, ComesBackAsItWasSaved) {
  ModelArchive saved{.class_name = "Net", .config = R"({"a":[1,2]})", .metadata = R"({"k":"v"})"};
  saved.parameters = {{"w", Tensor::from<float>({1.5f, -0.0f}, {1, 2})},
                      {"a", Tensor::from<bool>({true, false})},
                      {"none", Tensor::zeros({0, 3}, float64)},
                      {"count", Tensor::full({}, 3, int64)}};
  save_archive(path, saved);
  const ModelArchive back = load_archive(path);
  EXPECT_EQ(back.class_name, "Net");
  EXPECT_EQ(back.config, saved.config);
  EXPECT_EQ(back.metadata, saved.metadata);
  EXPECT_EQ(back.everyo_version, EVERYO_VERSION);
  EXPECT_THAT(back.created_at, testing::MatchesRegex("[0-9-]+T[0-9:]+[+]00:00"));
  ASSERT_EQ(back.parameters.size(), saved.parameters.size());
  for (std::size_t i = 0; i < back.parameters.size(); ++i) {
    EXPECT_EQ(back.parameters[i].first, saved.parameters[i].first);
    EXPECT_EQ(back.parameters[i].second.spec(), saved.parameters[i].second.spec());
  }
  EXPECT_EQ(digest(back.parameters), digest(saved.parameters));
}

TEST_F(Archive, WhatCannotBeSavedIsNamed) {
  const ModelArchive whole{.class_name = "Net", .parameters = {{"w", Tensor::zeros({1})}}};
  save_archive(path, whole);
  try {
    save_archive(path, {.class_name = "Other"}, false);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("already exists"), HasSubstr(path.string())));
  }
  EXPECT_THROW(save_archive(path, {.class_name = "Net", .config = "[]"}), ValueError);
  EXPECT_THROW(save_archive(path, {.class_name = "Net", .metadata = "{"}), ValueError);
  EXPECT_THROW(save_archive(path, {.class_name = "\xff"}), ValueError);
  EXPECT_THROW(save_archive(path, {.class_name = "Net", .parameters = {{"w", Tensor()}}}), StateError);
  EXPECT_THROW(save_archive(path, {.class_name = "Net", .parameters = {{"w", Tensor::zeros({1}, bfloat16)}}}),
               DTypeError);
  EXPECT_THROW(save_archive(path, {.class_name = "Net", .parameters = {whole.parameters[0], whole.parameters[0]}}),
               ValueError);
  EXPECT_EQ(load_archive(path).class_name, "Net");  // the old file is whole
}

TEST_F(Archive, FileCutOrChangedAnywhereIsRefused) {
  save_archive(path, {.class_name = "Net", .parameters = {{"w", Tensor::from<float>({1, 2})}}});
  const std::string whole = base::read_file(path, 1 << 20);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(std::string_view(whole).substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr("is not a valid everyo archive")) << size;
  }
  write(whole + "x");
  EXPECT_NE(refusal(), "no error");
  EXPECT_NO_THROW((write(whole), load_archive(path)));
}

TEST_F(Archive, MistakesAreNamed) {
  EXPECT_THAT(refusal(), HasSubstr("not found"));
  write("this is text, and no archive at all");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("is not a valid"), HasSubstr("no ZIP archive")));
  write(manifest.dump(), npz);
  EXPECT_EQ(refusal(), "no error");

  const auto with = [&](const char* name, const json& value) {
    json changed = manifest;
    changed[json::json_pointer(name)] = value;
    write(changed.dump(), npz);
    return refusal();
  };
  EXPECT_THAT(with("/format_version", 99), HasSubstr("format version 99"));
  EXPECT_THAT(with("/format_version", std::numeric_limits<std::uint64_t>::max()), HasSubstr("format version 18446"));
  EXPECT_THAT(with("/format_version", 0), HasSubstr("format version 0"));
  EXPECT_THAT(with("/format_version", "1"), HasSubstr("format_version"));
  EXPECT_THAT(with("/architecture", "Net"), HasSubstr("architecture"));
  EXPECT_THAT(with("/architecture/class_name", 1), HasSubstr("class_name"));
  EXPECT_THAT(with("/architecture/config", json::array()), HasSubstr("config"));
  EXPECT_THAT(with("/metadata", "text"), HasSubstr("metadata"));
  EXPECT_THAT(with("/parameters", json::array()), HasSubstr("parameters"));
  EXPECT_THAT(with("/parameters/more", {{"shape", {1}}}), HasSubstr("no values of 'more'"));
  EXPECT_THAT(with("/parameters/w/shape", {3}), AllOf(HasSubstr("[3]"), HasSubstr("float32 (2,)")));
  EXPECT_THAT(with("/parameters/w/dtype", "float64"), HasSubstr("float64"));
  EXPECT_THAT(with("/parameters/w", 1), HasSubstr("manifest.json says of 'w' 1"));
  EXPECT_EQ(with("/metadata", nullptr), "no error");
  EXPECT_EQ(with("/something", {1, 2}), "no error");

  write("[]", npz);
  EXPECT_THAT(refusal(), HasSubstr("manifest.json is no object"));
  write(std::string(100'000, '['), npz);
  EXPECT_THAT(refusal(), HasSubstr("deep"));
  write(manifest.dump(), "text");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("parameters.npz"), HasSubstr("no ZIP archive")));
  write(manifest.dump(), npz_of("w.txt", Tensor::zeros({2})));
  EXPECT_THAT(refusal(), HasSubstr("'w.txt' of its arrays is no .npy file"));
  io::ZipWriter pickled;
  pickled.add("w.npy", bytes_of("\x93NUMPY\1\0\x36\0{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n"),
              false);
  write(manifest.dump(), std::move(pickled).finish());
  EXPECT_NE(refusal(), "no error");
  io::ZipWriter alone;
  alone.add("manifest.json", bytes_of(manifest.dump()), true);
  write(std::move(alone).finish());
  EXPECT_THAT(refusal(), HasSubstr("it has no 'parameters.npz'"));
}

// 100 MB of zeros, packed twice: a few hundred bytes that would take a million times as many.
TEST_F(Archive, ABombIsNotUnpacked) {
  const std::string zeros(100'000'000, '\0');
  io::ZipWriter inner;
  inner.add("w.npy", bytes_of(zeros), true);
  write(manifest.dump(), std::move(inner).finish());
  ASSERT_LT(fs::file_size(path), 2000u);
  EXPECT_THAT(refusal(), HasSubstr("at most"));
}

}  // namespace
}  // namespace everyo
