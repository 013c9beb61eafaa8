#include "everyo/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/files.h"
#include "everyo/error.h"
#include "everyo/logging.h"
#include "everyo/tensor.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
StateArray array_of(const std::vector<T>& values, const Shape& shape) {
  return StateArray::copy_of({dtype_v<T>, shape}, std::as_bytes(std::span(values)));
}

StateTree state_of_step(std::int64_t step) {
  StateTree state;
  state["trainer"]["step"] = step;
  state["model"]["weight"] = array_of(std::vector<float>(1000, static_cast<float>(step)), {10, 100});
  return state;
}

std::string message_of(const fs::path& folder) {
  try {
    (void)load_state(folder);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

void write(const fs::path& path, std::string_view content) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

class Checkpoints : public testing::Test {
 protected:
  TemporaryFolder temporary;
  fs::path folder = temporary.path() / "run";
};

TEST_F(Checkpoints, EveryKindOfValueComesBackAsItWas) {
  StateTree state;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  state["whole"] = std::int64_t{3};
  state["least"] = std::numeric_limits<std::int64_t>::min();
  state["most"] = std::numeric_limits<std::int64_t>::max();
  state["three"] = 3.0;
  state["tenth"] = 0.1;
  state["minus zero"] = -0.0;
  state["tiny"] = 5e-324;
  state["inf"]["up"] = infinity;
  state["inf"]["down"] = -infinity;
  state["yes"] = true;
  state["text"] = "ün \"q\"\n";
  state["$odd/name"]["$array"] = "no array";
  state["nothing"] = StateTree();
  state["f"] = array_of<float>({1.5f, -0.0f}, {2});
  state["d"] = array_of<double>({0.1}, {});
  state["i"] = array_of<std::int64_t>({-1, 2, 3}, {3, 1});
  state["h"] = array_of<Float16>({Float16{0x7bff}}, {1});
  state["b"] = array_of<BFloat16>({BFloat16{0x7f7f}}, {1});
  state["empty"] = array_of<float>({}, {0, 4});
  state["a/b"] = array_of<float>({1}, {1});
  state["a"]["b"] = array_of<float>({2}, {1});  // the same path as the one above
  StateArray shard = array_of<float>({1, 2}, {2});
  shard.shard = ShardInfo{{5}, {3}};
  state["shard"] = shard;
  save_state(folder, state);
  const StateTree back = load_state(folder);
  EXPECT_TRUE(back == state);
  EXPECT_TRUE(back.at("three").is<double>());
  EXPECT_TRUE(std::signbit(back.get<double>("minus zero")));

  StateTree not_a_number;
  not_a_number["nan"] = std::nan("");
  save_state(temporary.path() / "nan", not_a_number);
  EXPECT_TRUE(std::isnan(load_state(temporary.path() / "nan").get<double>("nan")));
}

TEST_F(Checkpoints, WhatCannotBeSavedIsNamed) {
  save_state(folder, state_of_step(1));
  EXPECT_THROW(save_state(folder, state_of_step(2)), StateError);
  EXPECT_THROW(save_state(temporary.path() / "value", StateTree(1.0)), ValueError);
  StateTree text;
  text["bad"] = "\xff";
  EXPECT_THROW(save_state(temporary.path() / "text", text), ValueError);
  EXPECT_THROW(CheckpointStore(folder, {.keep_last = -1}), ValueError);
  EXPECT_THROW(CheckpointStore(folder).save(state_of_step(1), -1), ValueError);
  EXPECT_THAT(message_of(temporary.path() / "none"), HasSubstr("not found"));
}

TEST_F(Checkpoints, EveryTruncationAndFlippedBitIsNoticed) {
  StateTree small;
  small["step"] = std::int64_t{7};
  small["w"] = array_of<float>({1, 2}, {2});
  save_state(folder, small);
  for (const char* name : {"manifest.json", "state.safetensors"}) {
    const std::string whole = base::read_file(folder / name, 1 << 20);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      if (whole[size] == '\n' && size + 1 == whole.size()) continue;  // the manifest's last line end
      write(folder / name, whole.substr(0, size));
      EXPECT_NE(message_of(folder), "no error") << name << " cut to " << size;
    }
    for (std::size_t byte = 0; byte < whole.size(); ++byte) {
      std::string flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ 4);
      write(folder / name, flipped);
      EXPECT_NE(message_of(folder), "no error") << name << " byte " << byte;
    }
    write(folder / name, whole);
  }
  EXPECT_EQ(message_of(folder), "no error");
}

// A manifest whose own sum is right, whatever else it says.
std::string sealed(const std::string& body) {
  return "{\"body\":" + body + ",\"sha256\":\"" + base::sha256(std::as_bytes(std::span(body))) + "\"}";
}

TEST_F(Checkpoints, AHostileManifestIsRefused) {
  save_state(folder, state_of_step(1));
  const std::string whole = base::read_file(folder / "manifest.json", 1 << 20);
  // What a parser might stop at or climb down into.
  for (const std::string& end : {std::string("\0x", 2), std::string("x"), std::string("{}")}) {
    write(folder / "manifest.json", whole + end);
    EXPECT_THAT(message_of(folder), HasSubstr("its manifest: "));
  }
  write(folder / "manifest.json", "{\"body\":" + std::string(1'000'000, '['));
  EXPECT_THAT(message_of(folder), HasSubstr("deep"));
  write(folder / "manifest.json", "{\"body\":\"\xff\xfe\"}");
  EXPECT_EQ(message_of(folder).find('\xff'), std::string::npos);  // a message is text

  const json body = json::parse(whole)["body"];
  const auto with = [&](const char* name, const json& value) {
    json changed = body;
    changed[json::json_pointer(name)] = value;
    write(folder / "manifest.json", sealed(changed.dump()));
    return message_of(folder);
  };
  EXPECT_EQ(with("/kind", "everyo checkpoint"), "no error");
  EXPECT_THAT(with("/kind", "another"), HasSubstr("something else"));
  EXPECT_THAT(with("/kind", 3), HasSubstr("no whole checkpoint"));
  EXPECT_THAT(with("/files", {{"../../elsewhere", {{"bytes", 1}}}}), HasSubstr("names other files"));
  EXPECT_THAT(with("/files", json::array()), HasSubstr("names other files"));
  EXPECT_THAT(with("/files/state.safetensors/bytes", -1), HasSubstr("bytes"));
  EXPECT_THAT(with("/files/state.safetensors/bytes", "many"), HasSubstr("no whole checkpoint"));
  EXPECT_THAT(with("/files/state.safetensors/sha256", 1), HasSubstr("no whole checkpoint"));
  // The state itself must be a map, and every array belong to one place.
  EXPECT_THAT(with("/state", {{"$number", "nan"}}), HasSubstr("the state is no map"));
  EXPECT_THAT(with("/state", {{"$array", {{"name", "model/weight"}}}}), HasSubstr("the state is no map"));
  EXPECT_THAT(with("/state", json::object()), HasSubstr("belongs to nothing"));
  EXPECT_THAT(with("/state", json::array()), HasSubstr("no part of a state"));
  EXPECT_THAT(with("/state/again", {{"$array", {{"name", "model/weight"}}}}), HasSubstr("two entries name it"));
  EXPECT_THAT(with("/state/$more", 1), HasSubstr("means nothing"));
  EXPECT_THAT(with("/state/more", nullptr), HasSubstr("no part of a state"));
  EXPECT_THAT(with("/state/more", {{"$number", "1"}}), HasSubstr("a number is none"));
  EXPECT_THAT(with("/state/more", std::uint64_t{1} << 63), HasSubstr("beyond 64 bits"));
}

TEST_F(Checkpoints, ANewerFormatIsRefusedByItsNumber) {
  save_state(folder, state_of_step(1));
  std::string manifest = base::read_file(folder / "manifest.json", 1 << 20);
  const std::size_t at = manifest.find("\"format_version\":1");
  ASSERT_NE(at, std::string::npos);
  manifest.replace(at, 18, "\"format_version\":99");
  write(folder / "manifest.json", manifest);
  EXPECT_THAT(message_of(folder), HasSubstr("format version 99"));
}

TEST_F(Checkpoints, TheStoreKeepsTheLastOnesAndTheBest) {
  CheckpointStore store(folder, {.keep_last = 2});
  EXPECT_FALSE(store.load_latest());
  EXPECT_FALSE(store.load_best());
  EXPECT_FALSE(store.latest());
  EXPECT_FALSE(store.best());
  for (const std::int64_t step : {10, 20, 30, 40}) store.save(state_of_step(step), step, step == 20);
  std::vector<std::string> names;
  for (const fs::path& each : store.list()) names.push_back(each.filename().string());
  EXPECT_THAT(names, ElementsAre("step-000000020", "step-000000030", "step-000000040"));
  EXPECT_EQ(store.load_latest()->step, 40);
  EXPECT_EQ(store.load_best()->step, 20);
  EXPECT_EQ(store.latest(), folder / "step-000000040");
  EXPECT_EQ(store.best(), folder / "step-000000020");
  EXPECT_TRUE(store.load_best()->state == state_of_step(20));
  // The same step once more, as after a resume: nothing is written over.
  const fs::path again = store.save(state_of_step(41), 40);
  EXPECT_EQ(again.filename(), "step-000000040.2");
  EXPECT_TRUE(store.load_latest()->state == state_of_step(41));
}

TEST_F(Checkpoints, F04ADamagedNewestOneIsPassedOverWithANotice) {
  CheckpointStore store(folder);
  for (const std::int64_t step : {10, 20, 30}) store.save(state_of_step(step), step);
  std::vector<std::string> notices;
  set_log_sink([&](LogLevel, std::string_view message) { notices.emplace_back(message); });
  fs::remove(folder / "step-000000030" / "manifest.json");
  fs::create_directory(folder / "step-000000099");  // a folder by name alone
  std::optional<Checkpoint> found = store.load_latest();
  write(folder / "latest", "../elsewhere\n");
  const std::optional<Checkpoint> without_pointer = store.load_latest();
  set_log_sink({});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 20);
  EXPECT_TRUE(found->state == state_of_step(20));
  EXPECT_EQ(without_pointer->step, 20);
  EXPECT_THAT(notices, testing::Contains(HasSubstr("step-000000030' is no whole checkpoint")).Times(0));
  EXPECT_THAT(notices, testing::Contains(HasSubstr("step-000000030")));
  EXPECT_THAT(notices, testing::Contains(HasSubstr("step-000000099")));
  EXPECT_THAT(notices, testing::Contains(HasSubstr("names no checkpoint")));
}

}  // namespace
}  // namespace everyo
