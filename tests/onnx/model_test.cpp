#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "everyo/context.h"
#include "everyo/error.h"
#include "everyo/ops.h"
#include "onnx/hand_built.h"

namespace everyo {
namespace {

using namespace hand_built;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class OnnxModelTest : public Files {};

std::vector<std::string> names(const NamedTensors& values) {
  std::vector<std::string> found;
  for (const auto& [name, value] : values) found.push_back(name);
  return found;
}

TEST_F(OnnxModelTest, RunsAModelForAnyBatch) {
  const OnnxModel model(write(small_net()));
  const Tensor w = Tensor::from<float>({1, -2, 3, 4, -5, 6}, {3, 2}), b = Tensor::from<float>({0.5F, -0.25F});
  for (const std::int64_t batch : {1, 2, 3, 7}) {
    Tensor x = Tensor::empty({batch, 3});
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i % 5) - 2;
    const NamedTensors outputs = model.run({{"x", x}});
    ASSERT_THAT(names(outputs), ElementsAre("y"));
    const Tensor& y = outputs[0].second;
    EXPECT_EQ(y.spec(), (Spec{float32, {batch, 2}}));
    EXPECT_EQ(y.to_vector(), relu(matmul(x, w) + b).to_vector());  // small integers and quarters: exact
  }
}

TEST_F(OnnxModelTest, ConvertsNumbersWithinTheirKind) {
  Model net = small_net();
  net.input("ids", int64, {"batch"});
  const OnnxModel model(write(net));
  const auto becomes = [&](const std::string& name, DType dtype) {
    return model.convert({{name, Tensor::ones({2, 3}, dtype)}})[0].second.dtype();
  };
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8})
    EXPECT_EQ(becomes("x", dtype), float32) << name_of(dtype);
  for (const DType dtype : {int64, int32, uint8}) EXPECT_EQ(becomes("ids", dtype), int64) << name_of(dtype);
  EXPECT_EQ(becomes("x", boolean), boolean);
  EXPECT_EQ(becomes("ids", float64), float64);  // run() refuses it
  EXPECT_EQ(becomes("unknown", float64), float64);
}

TEST_F(OnnxModelTest, DiffersFromAFunctionByTheLargestOfAllBatches) {
  const OnnxModel model(write(small_net()));
  const Tensor w = Tensor::from<float>({1, -2, 3, 4, -5, 6}, {3, 2}), b = Tensor::from<float>({0.5F, -0.25F});
  const auto by = [&](const std::function<Tensor(const Tensor&)>& change, std::vector<NamedTensors> batches) {
    const OnnxFunction function = [&](std::span<const Tensor> in) {
      return std::vector<Tensor>{change(relu(matmul(cast(in[0], float32), w) + b))};
    };
    const OnnxAgreement found = compare_onnx(function, model, batches).at(0);
    EXPECT_EQ(found.output, "y");
    return std::pair(found.absolute, found.relative);
  };
  const NamedTensors ones{{"x", Tensor::ones({1, 3})}}, zeros{{"x", Tensor::zeros({2, 3}, float64)}};
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(by([](const Tensor& y) { return y; }, {ones, zeros}), std::pair(0.0, 0.0));
  // y is (0, 7.75) of ones and (0.5, 0) of zeros.
  EXPECT_EQ(by([](const Tensor& y) { return y * 2.0; }, {zeros, ones}), std::pair(7.75, 0.5));
  EXPECT_EQ(by([](const Tensor& y) { return y / y; }, {ones}).first, infinity);
  EXPECT_THROW(by([](const Tensor& y) { return reshape(y, {2, 1}); }, {ones}), ShapeError);
  const OnnxFunction two = [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0], in[0]}; };
  EXPECT_THAT(words_of<ShapeError>([&] { (void)compare_onnx(two, model, std::vector<NamedTensors>{ones}); }),
              HasSubstr("the function gives 2 outputs, the file 1;"));
}

TEST_F(OnnxModelTest, IsDescribedWithoutTheRuntime) {
  Model net = small_net();
  net.node("NoSuchOperator", {"x"}, {"other"});  // which the runtime refuses
  const std::filesystem::path path = write(net);
  EXPECT_THROW(OnnxModel{path}, FileError);
  const OnnxDescription file = describe_onnx(path);
  ASSERT_EQ(file.inputs.size(), 1U);
  EXPECT_EQ(file.inputs[0].name, "x");
  EXPECT_THAT(file.outputs.at(0).sizes, ElementsAre("batch", ""));
  EXPECT_THAT(words_of<FileError>([&] { (void)describe_onnx(folder.path() / "none.onnx"); }), HasSubstr("none.onnx"));
}

TEST_F(OnnxModelTest, TellsWhatTheFileSays) {
  Model net = small_net();
  net.graph().add_output()->set_name("z");
  net.graph().mutable_output(1)->mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
  net.input("unused", int64, {2, "", "n"});
  net.input("b", float32, {2});  // has a default, the initializer, and need not be given
  auto* entry = net.message.add_metadata_props();
  entry->set_key("made by");
  entry->set_value("hand");
  const OnnxModel model(write(net));
  ASSERT_EQ(model.inputs().size(), 2U);
  EXPECT_EQ(model.inputs()[0].name, "x");
  EXPECT_EQ(model.inputs()[0].dtype, float32);
  EXPECT_THAT(model.inputs()[0].shape, ElementsAre(-1, 3));
  EXPECT_THAT(model.inputs()[0].sizes, ElementsAre("batch", ""));
  EXPECT_EQ(model.inputs()[1].dtype, int64);
  EXPECT_THAT(model.inputs()[1].shape, ElementsAre(2, -1, -1));
  EXPECT_THAT(model.inputs()[1].sizes, ElementsAre("", "", "n"));
  ASSERT_EQ(model.outputs().size(), 2U);
  EXPECT_TRUE(model.outputs()[0].ranked);
  EXPECT_FALSE(model.outputs()[1].ranked);
  EXPECT_THAT(model.metadata(), ElementsAre(std::pair<std::string, std::string>("made by", "hand")));

  const NamedTensors outputs = model.run({{"unused", Tensor::zeros({2, 1, 1}, int64)}, {"x", Tensor::ones({1, 3})}});
  EXPECT_THAT(names(outputs), ElementsAre("y", "z"));
  EXPECT_THAT(outputs[0].second.to_vector(), ElementsAre(0, 7.75));
  EXPECT_THAT(outputs[1].second.to_vector(), ElementsAre(-0.5, 7.75));
}

TEST_F(OnnxModelTest, EveryDtypeGoesInAndComesOutToTheBit) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean}) {
    Model model;
    model.input("x", dtype, {"n", ""}).output("y", dtype, {"n", ""});
    model.node("Identity", {"x"}, {"y"});
    const OnnxModel loaded(write(model));
    for (const Shape& shape : {Shape{3, 5}, Shape{1, 1}, Shape{0, 4}}) {
      const Tensor x = Tensor::empty({dtype, shape});
      for (std::size_t i = 0; i < x.spec().bytes(); ++i)
        x.bytes()[i] = static_cast<std::byte>(dtype == boolean ? i % 2 : i * 7);
      const NamedTensors outputs = loaded.run({{"x", x}});
      const Tensor& y = outputs[0].second;
      ASSERT_EQ(y.spec(), x.spec()) << name_of(dtype);
      EXPECT_TRUE(std::equal(x.bytes(), x.bytes() + x.spec().bytes(), y.bytes())) << name_of(dtype);
      EXPECT_NE(x.bytes(), y.bytes());
    }
  }
}

TEST_F(OnnxModelTest, HalvesAreComputedWithAsTheRuntimeDoes) {
  Model model;
  model.input("x", bfloat16, {"n"}).output("y", float16, {"n"}).output("z", float32, {"n"});
  attribute(model.node("Cast", {"x"}, {"z"}), "to", AttributeProto::INT).set_i(TensorProto::FLOAT);
  NodeProto& narrow = model.node("Cast", {"z"}, {"y"});
  attribute(narrow, "to", AttributeProto::INT).set_i(TensorProto::FLOAT16);
  narrow.set_name("narrow");
  const NamedTensors outputs =
      run_onnx(write(model), {{"x", Tensor::from<BFloat16>({{0x3fc0}, {0xc000}})}});  // 1.5, -2
  EXPECT_THAT(outputs[0].second.to_vector(), ElementsAre(1.5, -2));
  EXPECT_THAT(outputs[1].second.to_vector(), ElementsAre(1.5, -2));
}

TEST_F(OnnxModelTest, ScalarsAndModelsWithoutInputs) {
  Model model;
  model.initializer("c", Tensor::scalar(3, float64)).output("y", float64, {});
  model.node("Neg", {"c"}, {"y"});
  const NamedTensors outputs = run_onnx(write(model), {});
  EXPECT_EQ(outputs[0].second.spec(), (Spec{float64, {}}));
  EXPECT_EQ(outputs[0].second.item(), -3);
}

// A file may have any byte for a bool, a bool of ours only two.
TEST_F(OnnxModelTest, BoolsThatComeOutAreBools) {
  Model model;
  model.initializer("c", Tensor::zeros({3}, boolean)).output("y", boolean, {3});
  model.graph().mutable_initializer(0)->set_raw_data(std::string("\2\0\xff", 3));
  model.node("Identity", {"c"}, {"y"});
  const NamedTensors outputs = run_onnx(write(model), {});
  EXPECT_THAT(std::vector(outputs[0].second.bytes(), outputs[0].second.bytes() + 3),
              ElementsAre(std::byte{1}, std::byte{0}, std::byte{1}));
}

TEST_F(OnnxModelTest, OutputsHaveDataInsideAMetaScope) {
  const OnnxModel model(write(small_net()));
  const Tensor x = Tensor::ones({1, 3});
  const MetaScope meta;
  EXPECT_FALSE(model.run({{"x", x}})[0].second.is_meta());
}

TEST_F(OnnxModelTest, InputsThatDoNotFitAreNamed) {
  Model net = small_net();
  net.input("scale", float32, {"batch"});
  const OnnxModel model(write(net));
  const Tensor x = Tensor::ones({2, 3}), scale = Tensor::ones({2});
  const auto run = [&](const NamedTensors& inputs) { return [&model, inputs] { (void)model.run(inputs); }; };
  EXPECT_EQ(words_of<ValueError>(run({{"x", x}})), "[run_onnx] input 'scale' is missing; the file takes 'x', 'scale'");
  EXPECT_EQ(words_of<ValueError>(run({{"x", x}, {"q", x}})),
            "[run_onnx] the file has no input 'q'; it has 'x', 'scale'");
  EXPECT_EQ(words_of<ValueError>(run({{"x", x}, {"x", x}})), "[run_onnx] input 'x' is given twice");
  EXPECT_EQ(words_of<DTypeError>(run({{"x", Tensor::ones({2, 3}, float64)}, {"scale", scale}})),
            "[run_onnx] input 'x' is float64; the file takes float32");
  EXPECT_EQ(words_of<ShapeError>(run({{"x", Tensor::ones({2, 4})}, {"scale", scale}})),
            "[run_onnx] input 'x' has shape (2, 4); the file takes (batch, 3)");
  EXPECT_EQ(words_of<ShapeError>(run({{"x", Tensor::ones({3})}, {"scale", scale}})),
            "[run_onnx] input 'x' has shape (3,); the file takes (batch, 3)");
  EXPECT_EQ(words_of<ShapeError>(run({{"x", x}, {"scale", Tensor::ones({3})}})),
            "[run_onnx] input 'scale' has 3 as its size 'batch', input 'x' 2; sizes of one name are equal");
  EXPECT_EQ(words_of<StateError>(run({{"x", Tensor::meta({float32, {2, 3}})}, {"scale", scale}})),
            "[run_onnx] input 'x' has no data; give a tensor with values");
  EXPECT_EQ(words_of<StateError>(run({{"x", Tensor()}, {"scale", scale}})),
            "[run_onnx] input 'x' has no data; give a tensor with values");
}

TEST_F(OnnxModelTest, WhatIsNoTensorOfOursIsRefused) {
  const auto refusal = [&](const std::function<void(onnx_file::TypeProto&)>& change) {
    Model net = small_net();
    ValueInfoProto& input = *net.graph().add_input();
    input.set_name("other");
    change(*input.mutable_type());
    return words_of<FileError>([&] { (void)OnnxModel(write(net)); });
  };
  using onnx_file::TypeProto;
  EXPECT_THAT(refusal([](TypeProto& t) {
                t.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
              }),
              HasSubstr("model.onnx': input 'other' is a sequence; only tensors are taken and given here"));
  EXPECT_THAT(refusal([](TypeProto& t) { t.mutable_map_type()->set_key_type(7); }),
              HasSubstr("input 'other' is a map"));
  EXPECT_THAT(refusal([](TypeProto& t) { t.mutable_optional_type()->mutable_elem_type(); }),
              HasSubstr("input 'other' is an optional value"));
  EXPECT_THAT(refusal([](TypeProto& t) { t.mutable_sparse_tensor_type()->set_elem_type(1); }),
              HasSubstr("input 'other' is a sparse tensor"));
  EXPECT_THAT(
      refusal([](TypeProto& t) { t.mutable_tensor_type()->set_elem_type(8); }),
      HasSubstr("input 'other' is of type string; float32, float64, float16, bfloat16, int64, int32, uint8 and bool"));
  EXPECT_THAT(refusal([](TypeProto& t) { t.mutable_tensor_type()->set_elem_type(3); }), HasSubstr("is of type int8;"));
  EXPECT_THAT(refusal([](TypeProto& t) { t.mutable_tensor_type()->set_elem_type(99); }),
              HasSubstr("is of type number 99;"));
  EXPECT_THAT(refusal([](TypeProto& t) {
                t.mutable_tensor_type()->set_elem_type(1);
                for (int i = 0; i < 9; ++i) t.mutable_tensor_type()->mutable_shape()->add_dim();
              }),
              HasSubstr("is of 9 axes; 8 are the most"));
}

TEST_F(OnnxModelTest, WhatTheRuntimeReportsIsPassedOnAndNothingIsPrinted) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Model net = small_net();
  net.graph().mutable_node(1)->set_op_type("NoSuchOperator");
  EXPECT_THAT(
      words_of<FileError>([&] { (void)OnnxModel(write(net)); }),
      AllOf(HasSubstr("model.onnx': ONNX Runtime 1."), HasSubstr("does not take it: "), HasSubstr("NoSuchOperator")));

  Model gather;
  gather.input("x", float32, {3}).input("i", int64, {1}).output("y", float32, {1});
  gather.node("Gather", {"x", "i"}, {"y"});
  const OnnxModel model(write(gather));
  const Tensor x = Tensor::from<float>({1, 2, 3});
  try {
    (void)model.run({{"x", x}, {"i", Tensor::from<std::int64_t>({7})}});
    ADD_FAILURE() << "an index outside of its axis was taken";
  } catch (const StateError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::backend);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.onnx': ONNX Runtime says: "), HasSubstr("out of data bounds")));
  }
  EXPECT_THAT(model.run({{"x", x}, {"i", Tensor::from<std::int64_t>({-1})}})[0].second.to_vector(), ElementsAre(3));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST_F(OnnxModelTest, ThreadsShareAModelAndLoadTheirOwn) {
  const std::filesystem::path path = write(small_net());
  const OnnxModel shared(path, {.threads = 2});
  std::atomic<int> right = 0;
  const auto work = [&](int thread) {
    const OnnxModel own(path, {.threads = 1});
    for (int i = 0; i < 50; ++i) {
      const Tensor x = Tensor::full({4, 3}, thread + i);
      const auto a = shared.run({{"x", x}})[0].second.to_vector(), b = own.run({{"x", x}})[0].second.to_vector();
      const double second = 8 * (thread + i) - 0.25;
      if (a == b && a[1] == std::max(second, 0.0)) ++right;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 50);
}

TEST_F(OnnxModelTest, ThreadsAreChecked) {
  const std::filesystem::path path = write(small_net());
  for (const int threads : {-1, 1025}) {
    EXPECT_THAT(words_of<ValueError>([&] { (void)OnnxModel(path, {.threads = threads}); }), HasSubstr("threads is"));
  }
}

TEST_F(OnnxModelTest, MovesAndLeavesNothingBehind) {
  OnnxModel first(write(small_net()));
  OnnxModel second(std::move(first));
  first = std::move(second);
  EXPECT_EQ(first.run({{"x", Tensor::ones({1, 3})}}).size(), 1U);
}

// The runtime's threads are not in a forked process: a run there, and a model's end, would wait for them.
TEST_F(OnnxModelTest, AForkedProcessIsToldToLoadItsOwnAndMayDropTheOther) {
  const std::filesystem::path path = write(small_net());
  std::optional<OnnxModel> model;
  model.emplace(path, OnnxRuntimeOptions{.threads = 4});
  (void)model->run({{"x", Tensor::ones({1, 3})}});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until its threads sleep, as those that hang do
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // ends a child that waits
    const Tensor x = Tensor::ones({1, 3});
    int seen = 1;
    try {
      (void)model->run({{"x", x}});
    } catch (const StateError& error) {
      const bool told =
          std::string_view(error.what()).find("was loaded before this process was forked") != std::string_view::npos;
      seen = told && OnnxModel(path, {.threads = 2}).run({{"x", x}}).size() == 1 ? 0 : 2;
    }
    model.reset();
    _exit(seen);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another process, since the runtime looks once: at home it would keep a database about this machine, to be sent away.
TEST_F(OnnxModelTest, TheRuntimeWritesNothingAtHome) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "env -u ORT_DISABLE_TELEMETRY -u XDG_CACHE_HOME HOME='" + folder.path().string() + "' '" +
                              program + "' --gtest_filter=OnnxModelTest.RunsAModelForAnyBatch > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace everyo
