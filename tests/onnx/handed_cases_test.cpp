#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/io.h"
#include "everyo/nn.h"
#include "everyo/onnx.h"
#include "everyo/ops.h"
#include "everyo/precision.h"
#include "onnx/export.h"
#include "onnx/refusal.h"
#include "support/temporary_folder.h"

// The handed cases of ONNX export, O01 to O15, and A20.
namespace everyo {
namespace {

namespace ox = onnx_export;
using testing::AllOf;
using testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

ox::LoweredGraph graph_of(ModuleBase& model, const Shape& input, const OnnxOptions& options = {}) {
  const OnnxInput in{"input", {options.input_dtype, input}};
  const OnnxFunction function = [&](std::span<const Tensor> x) { return std::vector<Tensor>{model.forward_any(x[0])}; };
  return ox::export_graph(function, std::span(&in, 1), options, model.state_dict()).whole;
}
const onnx::Node& node_of(const ox::LoweredGraph& lowered, std::string_view type) {
  for (const onnx::Node& node : lowered.graph.nodes)
    if (node.type == type) return node;
  throw std::runtime_error("no node of that type");
}
onnx::AttributeValue attribute_of(const onnx::Node& node, std::string_view name) {
  for (const onnx::Attribute& attribute : node.attributes)
    if (attribute.name == name) return attribute.value;
  return std::string("missing");
}

/// Exports, checks at batches of 1, 2, 3 and 7, and gives the largest relative difference.
double checked(ModuleBase& model, const Shape& input, OnnxOptions options = {}) {
  const TemporaryFolder folder;
  options.check = true;
  model.eval();
  return export_onnx(model, folder.path() / "model.onnx", input, options).agreements.at(0).relative;
}
constexpr double sums_in_another_order = 1e-5;

TEST(OnnxCases, O01_SamePaddingIsNumbersWithTheOddCellBehind) {
  Conv2D odd(2, 3, 3, {.padding = "same"}), even(2, 3, 4, {.padding = "same"}),
      dilated(2, 3, 4, {.padding = "same", .dilation = 2});
  for (Conv2D* conv : {&odd, &even, &dilated}) conv->eval();
  const auto pads = [](Conv2D& conv) { return attribute_of(node_of(graph_of(conv, {2, 8, 7, 2}), "Conv"), "pads"); };
  EXPECT_EQ(pads(odd), onnx::AttributeValue(Numbers{1, 1, 1, 1}));
  EXPECT_EQ(pads(even), onnx::AttributeValue(Numbers{1, 1, 2, 2}));
  EXPECT_EQ(pads(dilated), onnx::AttributeValue(Numbers{3, 3, 3, 3}));
  const ox::LoweredGraph graph = graph_of(even, {2, 8, 7, 2});
  EXPECT_EQ(graph.outputs[0].spec.shape, (Shape{2, 8, 7, 3}));
  for (Conv2D* conv : {&odd, &even, &dilated}) EXPECT_LE(checked(*conv, {1, 8, 7, 2}), sums_in_another_order);
}

TEST(OnnxCases, O02_PadsAreBeginsThenEndsInTheOrderOfTheAxes) {
  AvgPool2D model(2, {.stride = 1, .padding = Padding(1, 0, 0, 1), .count_padding = true});
  model.eval();
  const ox::LoweredGraph graph = graph_of(model, {2, 5, 6, 3});
  const onnx::Node& pad = node_of(graph, "Pad");
  for (const onnx::Constant& constant : graph.graph.constants) {
    if (constant.name == pad.inputs[1]) {
      EXPECT_THAT(constant.value.data<std::int64_t>(), testing::ElementsAre(0, 0, 1, 0, 0, 0, 0, 1));
    }
  }
  EXPECT_LE(checked(model, {1, 5, 6, 3}), sums_in_another_order);
  Conv2D one_side(3, 2, {2, 1}, {.padding = Padding(1, 0, 0, 0)});
  one_side.eval();
  EXPECT_EQ(attribute_of(node_of(graph_of(one_side, {2, 5, 6, 3}), "Conv"), "pads"),
            onnx::AttributeValue(Numbers{1, 0, 0, 0}));
  EXPECT_LE(checked(one_side, {1, 5, 6, 3}), sums_in_another_order);
}

TEST(OnnxCases, O04_CeilModeCountsNoWindowThatStartsBehindTheImage) {
  for (std::int64_t size = 2; size <= 7; ++size) {
    MaxPool2D most(3, {.stride = 3, .padding = 1, .ceil_mode = true});
    EXPECT_EQ(checked(most, {1, size, size, 2}), 0) << size;
    AvgPool2D average(3, {.stride = 3, .padding = 1, .ceil_mode = true, .count_padding = false});
    EXPECT_LE(checked(average, {1, size, size, 2}), sums_in_another_order) << size;
  }
}

/// A net whose batch norm has seen batches, so that eval and training differ.
Sequential normed() {
  Sequential net(Conv2D(2, 4, 3, {.seed = 0}), BatchNorm2D(4), ReLU(), Flatten(), Linear(4 * 4 * 4, 3, {.seed = 1}));
  Generator generator(0);
  Tensor x = Tensor::empty({8, 6, 6, 2});
  const NoGrad no_grad;
  for (int batch = 0; batch < 5; ++batch) {
    generator.normal(1, 3, x.data<float>());
    (void)net(x);
  }
  return net;
}

TEST(OnnxCases, O05_BatchNormIsComparedInEvalModeAndNothingIsLeftChanged) {
  Sequential net = normed();
  const TemporaryFolder folder;
  EXPECT_THAT(refusal_of([&] {
                export_onnx(net, folder.path() / "model.onnx", {1, 6, 6, 2}, {.check = true});
              }),
              AllOf(HasSubstr("training mode"), HasSubstr("eval()")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(net.training() && net[1].training());
  net.eval();
  const std::string before = digest(net.state_dict());
  EXPECT_LE(checked(net, {1, 6, 6, 2}), sums_in_another_order);
  EXPECT_EQ(digest(net.state_dict()), before);
  EXPECT_FALSE(net.training() || net[1].training());
}

TEST(OnnxCases, O06_BatchNormWithoutRunningStatisticsIsRefused) {
  Sequential net(Linear(4, 4), BatchNorm1D(4, {.track_running_stats = false}));
  net.eval();
  const TemporaryFolder folder;
  EXPECT_THAT(refusal_of([&] {
                export_onnx(net, folder.path() / "model.onnx", {1, 4});
              }),
              AllOf(HasSubstr("track_running_stats"), HasSubstr("module '1'"), HasSubstr("batch_norm")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OnnxCases, O07_EachModuleKeepsItsModeAndTheModelItsState) {
  Sequential net = normed();
  net.train();
  net[1].eval();  // frozen inside a model that trains
  const TemporaryFolder folder;
  const std::string before = digest(net.state_dict());
  EXPECT_THAT(refusal_of([&] {
                export_onnx(net, folder.path() / "model.onnx", {1, 6, 6, 2});
              }),
              HasSubstr("the model (Sequential)"));
  EXPECT_TRUE(net.training() && net[0].training() && !net[1].training());
  net.eval();
  net[4].train();
  EXPECT_THAT(refusal_of([&] {
                export_onnx(net, folder.path() / "model.onnx", {1, 6, 6, 2});
              }),
              HasSubstr("module '4' (Linear) is in training mode"));
  net[4].eval();
  Tensor x = Tensor::ones({2, 6, 6, 2});
  sum(net(x)).backward();
  const Tensor gradient = net.parameters()[0].grad().copy();
  export_onnx(net, folder.path() / "model.onnx", {1, 6, 6, 2});
  EXPECT_EQ(net.parameters()[0].grad().to_vector(), gradient.to_vector());
  EXPECT_EQ(digest(net.state_dict()), before);
}

/// Self-attention by plain ops: x [N, T, D], two heads.
struct Attention : Module<Attention> {
  void visit(Visitor& v) { v("query", query)("key", key)("value", value)("out", out); }
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    const std::int64_t n = x.shape()[0], t = x.shape()[1];
    const auto heads = [&](const Tensor& y) {
      return transpose(reshape(y, {n, t, 2, 4}), {0, 2, 1, 3});
    };                                                                                            // [N, 2, T, 4]
    const Tensor scores = matmul(heads(query(x)), transpose(heads(key(x)), {0, 1, 3, 2})) * 0.5;  // [N, 2, T, T]
    const Tensor mixed = matmul(softmax(scores, -1), heads(value(x)));
    return out(reshape(transpose(mixed, {0, 2, 1, 3}), {n, t, 8}));
  }
  Linear query{8, 8, {.seed = 0}}, key{8, 8, {.seed = 1}}, value{8, 8, {.seed = 2}}, out{8, 8, {.seed = 3}};
};

TEST(OnnxCases, O08_TheBatchIsNeverFoldedIntoAShape) {
  Attention attention;
  EXPECT_LE(checked(attention, {1, 5, 8}), sums_in_another_order);  // at batches of 1, 2, 3 and 7
  Sequential flat(Conv2D(1, 2, 3), Flatten(), Linear(2 * 4 * 4, 3));
  EXPECT_LE(checked(flat, {1, 6, 6, 1}), sums_in_another_order);
  // The number of rows may be open, too, and then the file takes any.
  OnnxOptions options{.symbolic = {{"input", 1, "time"}}};
  EXPECT_LE(checked(attention, {1, 5, 8}, options), sums_in_another_order);
}

TEST(OnnxCases, O10_AnAxisOfAnInputThatIsNotThereIsAnError) {
  Attention attention;
  attention.eval();
  const TemporaryFolder folder;
  const auto refused = [&](const SymbolicAxis& axis) {
    return refusal_of([&] { export_onnx(attention, folder.path() / "model.onnx", {1, 5, 8}, {.symbolic = {axis}}); });
  };
  EXPECT_THAT(refused({"inptu", 1, "time"}), AllOf(HasSubstr("'inptu'"), HasSubstr("'input'")));
  EXPECT_THAT(refused({"input", 3, "time"}), AllOf(HasSubstr("axis 3"), HasSubstr("3 axes")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OnnxCases, O13_WeightsAboveTheLimitLieInASecondFile) {
  Sequential net(Linear(64, 64, {.seed = 0}), ReLU(), Linear(64, 3, {.seed = 1}));
  net.eval();
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.onnx";
  const OnnxReport report = export_onnx(net, path, {1, 64}, {.external_data_above = 4096, .check = true});
  ASSERT_TRUE(report.data);
  EXPECT_GE(std::filesystem::file_size(*report.data), 64u * 64 * 4);
  EXPECT_LT(std::filesystem::file_size(path), 4096u);
  EXPECT_EQ(report.bytes, std::filesystem::file_size(path) + std::filesystem::file_size(*report.data));
  const Tensor x = Tensor::ones({5, 64});
  const NoGrad no_grad;
  const std::vector<double> ours = net(x).to_vector(), theirs = run_onnx(path, {{"input", x}})[0].second.to_vector();
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], sums_in_another_order);
  std::filesystem::remove(*report.data);
  EXPECT_THAT(refusal_of([&] { run_onnx(path, {{"input", x}}); }), HasSubstr(report.data->filename().string()));
}

struct MeanOverSpace : Module<MeanOverSpace> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return mean(x + 4.0, {1, 2}); }
};

TEST(OnnxCases, O14_AFloat16MeanOverSpaceAccumulatesWide) {
  MeanOverSpace model;
  EXPECT_LE(checked(model, {1, 512, 512, 1}, {.input_dtype = float16, .check_batches = {1, 2}}),
            2e-3);  // two units of the last place
  GlobalAvgPool2D pool;
  EXPECT_LE(checked(pool, {1, 512, 512, 1}, {.input_dtype = float16, .check_batches = {1, 2}}), 2e-3);
}

TEST(OnnxCases, O15_DeclaredTypesAreTheRealOnes) {
  Sequential net(Linear(8, 4, {.dtype = float16}), Softmax());
  net.eval();
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.onnx";
  export_onnx(net, path, {1, 8}, {.input_dtype = float16});
  const OnnxModel model(path);
  EXPECT_EQ(model.inputs()[0].dtype, float16);
  EXPECT_EQ(model.outputs()[0].dtype, float16);
  EXPECT_EQ(model.run({{"input", Tensor::ones({3, 8}, float16)}})[0].second.dtype(), float16);
}

/// Scores of halves under a float32 mask: promotion makes them float32, and so must the values be, by a cast that is in
/// the file.
struct Masked : Module<Masked> {
  [[nodiscard]] Tensor forward(const Tensor& q) const {
    const Tensor scores = matmul(q, transpose(q, {0, 2, 1})) + Tensor::full({4, 4}, -1.5);  // [N, 4, 4] float32
    return matmul(softmax(scores, -1), q);
  }
};

TEST(OnnxCases, A20_AFloat32MaskOverFloat16ScoresHasOneRuleHereAndInTheFile) {
  Masked model;
  const Tensor q = Tensor::ones({2, 4, 8}, float16);
  EXPECT_EQ(model(q).dtype(), float32);
  EXPECT_LE(checked(model, {1, 4, 8}, {.input_dtype = float16}), 2e-3);
  const Autocast low(float16);
  EXPECT_EQ(model(Tensor::ones({2, 4, 8})).dtype(), float16);
  EXPECT_LE(checked(model, {1, 4, 8}, {.autocast = float16}), 2e-3);
}

}  // namespace
}  // namespace everyo
