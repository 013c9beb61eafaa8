#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "everyo/error.h"
#include "onnx/hand_built.h"

// Files that are no models, or no longer: an error of ours, whatever the bytes, and no word of the runtime's elsewhere.
namespace everyo {
namespace {

namespace fs = std::filesystem;
using namespace hand_built;
using testing::AllOf;
using testing::HasSubstr;

class OnnxHostile : public Files {
 protected:
  /// The words of the refusal; "" when it is loaded, and then run.
  [[nodiscard]] std::string outcome(std::string_view content) const {
    try {
      const OnnxModel model(write(content), {.threads = 1});
      NamedTensors inputs;
      for (const OnnxValue& input : model.inputs()) {
        Shape shape;
        for (const std::int64_t size : input.shape) shape.push_back(size < 0 ? 2 : std::min<std::int64_t>(size, 64));
        inputs.emplace_back(input.name, Tensor::ones(shape, input.dtype));
      }
      (void)model.run(inputs);
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 1500U);
      return error.what();
    }
    return {};
  }
};

/// A net with what mutations may hit: kinds of attributes, a graph inside a node, a constant, integers, text.
Model varied_net() {
  Model model;
  model.input("x", float32, {"batch", 1, 4, 4}).output("y", float32, {"batch", 2}).output("z", float32, {"batch", 2});
  model.initializer("w", Tensor::ones({2, 1, 3, 3})).initializer("shape", Tensor::from<std::int64_t>({-1, 2}));
  model.initializer("yes", Tensor::ones({}, boolean));
  NodeProto& conv = model.node("Conv", {"x", "w"}, {"c"});
  for (const int size : {1, 1})
    (conv.attribute_size() == 0 ? attribute(conv, "strides", AttributeProto::INTS) : *conv.mutable_attribute(0))
        .add_ints(size);
  NodeProto& pool = model.node("MaxPool", {"c"}, {"p"});
  attribute(pool, "kernel_shape", AttributeProto::INTS).add_ints(2);
  pool.mutable_attribute(0)->add_ints(2);
  attribute(pool, "auto_pad", AttributeProto::STRING).set_s("VALID");
  model.node("Reshape", {"p", "shape"}, {"r"});
  NodeProto& constant = model.node("Constant", {}, {"k"});
  fill(*attribute(constant, "value", AttributeProto::TENSOR).mutable_t(), "", Tensor::from<float>({1, 2}));
  attribute(model.node("Softmax", {"r"}, {"s"}), "axis", AttributeProto::INT).set_i(-1);
  model.node("Add", {"s", "k"}, {"y"});
  NodeProto& choice = model.node("If", {"yes"}, {"z"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProto& inner = *attribute(choice, branch, AttributeProto::GRAPH).mutable_g();
    NodeProto& negate = *inner.add_node();
    negate.set_op_type("Neg");
    negate.add_input("y");
    negate.add_output("inside");
    inner.set_name(branch);
    describe(*inner.add_output(), "inside", float32, {"batch", 2});
  }
  return model;
}

TEST_F(OnnxHostile, AFileCutAtAnyByteIsRefused) {
  const std::string whole = varied_net().bytes();
  ASSERT_EQ(outcome(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(outcome(whole.substr(0, size)), HasSubstr("model.onnx")) << "cut to " << size;
  }
}

TEST_F(OnnxHostile, BitsThatFlip) {
  for (const auto& [model, stride] : {std::pair(small_net(), std::size_t{1}), {varied_net(), 1}}) {
    const std::string whole = model.bytes();
    for (std::size_t i = 0; i < 8 * whole.size(); i += stride) {
      std::string flipped = whole;
      flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
      const std::string words = outcome(flipped);
      if (!words.empty()) {
        EXPECT_THAT(words, testing::AnyOf(HasSubstr("model.onnx"), HasSubstr("[run_onnx] input"))) << i;
      }
    }
  }
}

TEST_F(OnnxHostile, BytesAtRandom) {
  std::mt19937 random(17);
  const std::string whole = varied_net().bytes();
  const auto below = [&](std::size_t limit) { return random() % limit; };
  for (int i = 0; i < 1000; ++i) {
    std::string noise(below(200), '\0');
    for (char& c : noise) c = static_cast<char>(random());
    EXPECT_NE(outcome(noise), "");
    std::string changed = whole;
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      const std::size_t at = below(changed.size()), from = below(changed.size());
      const std::size_t length = std::min(below(20), changed.size() - from);
      const std::size_t kind = below(3);
      if (kind == 0) changed[at] = static_cast<char>(random());
      if (kind == 1) changed.erase(at, below(20));
      if (kind == 2) changed.insert(at, std::string(changed, from, length));
    }
    (void)outcome(changed);
  }
}

TEST_F(OnnxHostile, OtherKindsOfFiles) {
  EXPECT_THAT(outcome(""), HasSubstr("model.onnx': it has no version of the format"));
  EXPECT_THAT(outcome("{\"a\": 1}"), HasSubstr("are no ONNX model; it is cut short, damaged, or another kind of file"));
  EXPECT_THAT(words_of<FileError>([&] { (void)OnnxModel(folder.path()); }), HasSubstr("it is a directory"));
  EXPECT_THAT(words_of<FileError>([&] { (void)OnnxModel("/dev/null"); }), HasSubstr("it is a device"));
  try {
    (void)OnnxModel(folder.path() / "none.onnx");
    ADD_FAILURE() << "a file that is not there was read";
  } catch (const FileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file_not_found);
    EXPECT_THAT(error.what(), HasSubstr("none.onnx': not found"));
  }
  // The runtime would take this name for that of a file of its own format.
  EXPECT_EQ(OnnxModel(write(small_net(), "model.ort")).outputs().size(), 1U);
}

TEST_F(OnnxHostile, FilesLargerThanAMessageAreNotRead) {
  const fs::path path = write(small_net());
  fs::resize_file(path, std::uintmax_t{3} << 30);  // takes no place on the disk
  EXPECT_THAT(words_of<FileError>([&] { (void)OnnxModel(path); }),
              HasSubstr("it has 3221225472 bytes; an ONNX file has at most 2147483647"));
}

TEST_F(OnnxHostile, MessagesThatNestWithoutEnd) {
  std::string nested;  // type → optional type → type → …
  for (int i = 0; i < 5000; ++i) {
    const auto wrap = [&](char tag) {
      std::string size;
      std::size_t rest = nested.size();
      for (; rest >= 128; rest >>= 7) size.push_back(static_cast<char>(rest | 128));
      size.push_back(static_cast<char>(rest));
      nested = tag + size + nested;
    };
    wrap('\x0a');  // elem_type of Optional
    wrap('\x4a');  // optional_type of TypeProto
  }
  Model model = small_net();
  onnx_file::ValueInfoProto& info = *model.graph().add_value_info();
  info.set_name("deep");
  std::string bytes = info.SerializeAsString();
  const auto field = [](char tag, const std::string& content) {
    std::string size;
    std::size_t rest = content.size();
    for (; rest >= 128; rest >>= 7) size.push_back(static_cast<char>(rest | 128));
    size.push_back(static_cast<char>(rest));
    return tag + size + content;
  };
  bytes += field('\x12', nested);                                                       // type
  const std::string whole = small_net().bytes() + field('\x3a', field('\x6a', bytes));  // graph, value_info
  EXPECT_THAT(outcome(whole), HasSubstr("are no ONNX model"));
}

class OnnxExternalData : public OnnxHostile {
 protected:
  /// The small net with its w in another file, from byte 8 on.
  [[nodiscard]] static Model net(const std::string& location) {
    Model model = small_net();
    TensorProto& w = *model.graph().mutable_initializer(0);
    w.clear_raw_data();
    w.set_data_location(TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>("location", location), {"offset", "8"}, {"length", "24"}}) {
      auto& entry = *w.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    return model;
  }
  const std::string data = std::string(8, '\0') + small_net().graph().initializer(0).raw_data();
};

TEST_F(OnnxExternalData, IsReadBesideTheModelAndBelow) {
  fs::create_directory(folder.path() / "below");
  for (const std::string location : {"w.data", "below/w.data"}) {
    (void)write(data, location);
    const auto outputs = run_onnx(write(net(location)), {{"x", Tensor::ones({1, 3})}});
    EXPECT_EQ(outputs[0].second.to_vector(),
              run_onnx(write(small_net(), "own.onnx"), {{"x", Tensor::ones({1, 3})}})[0].second.to_vector());
  }
}

TEST_F(OnnxExternalData, CutShortOrMissing) {
  for (std::size_t size = 0; size < data.size(); ++size) {
    (void)write(data.substr(0, size), "w.data");
    EXPECT_THAT(outcome(net("w.data").bytes()), HasSubstr("model.onnx': 'w.data' has " + std::to_string(size) +
                                                          " bytes, and initializer 'w' would end at 32"));
  }
  EXPECT_THAT(outcome(net("none.data").bytes()), AllOf(HasSubstr("none.data"), HasSubstr("not found")));
  fs::create_directory(folder.path() / "folder.data");
  EXPECT_THAT(outcome(net("folder.data").bytes()), HasSubstr("it is a directory"));
}

TEST_F(OnnxExternalData, StaysInTheFolder) {
  fs::create_directory(folder.path() / "models");
  (void)write(data, "outside.data");
  const std::string absolute = (folder.path() / "outside.data").string();
  const std::vector<std::string> outside{"../outside.data", "models/../../outside.data", absolute,
                                         "*/_ORT_MEM_ADDR_/*"};
  for (const std::string& location : outside) {
    const fs::path path = write(net(location), "models/model.onnx");
    EXPECT_THAT(words_of<FileError>([&] { (void)OnnxModel(path); }),
                HasSubstr("a path inside the model's folder is wanted"))
        << location;
  }
}

}  // namespace
}  // namespace everyo
