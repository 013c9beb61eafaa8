#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "everyo/nn.h"
#include "everyo/onnx.h"
#include "everyo/ops.h"
#include "support/temporary_folder.h"

// Every module beside what ONNX Runtime computes of its file, at batches of 1, 2, 3 and 7 and odd and even images.
namespace everyo {
namespace {

struct Case {
  std::string name;
  std::function<std::unique_ptr<ModuleBase>(DType)> make;
  std::vector<Shape> inputs;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

template <class M>
std::unique_ptr<ModuleBase> boxed(M module) {
  return std::make_unique<M>(std::move(module));
}

/// Running statistics that are not those of a fresh layer: of three batches.
template <class M>
std::unique_ptr<ModuleBase> warmed(M module, const Shape& shape) {
  Generator generator(1);
  Tensor x = Tensor::empty(shape);
  for (int batch = 0; batch < 3; ++batch) {
    generator.normal(0.3, 2, x.data<float>());
    const NoGrad no_grad;
    (void)module(x);
  }
  return boxed(std::move(module));
}

std::vector<Case> cases() {
  const std::vector<Shape> rows{{4, 12}}, images{{4, 8, 8, 4}, {4, 7, 9, 4}, {4, 6, 5, 4}}, sequences{{4, 5, 12}};
  std::vector<Case> list;
  const auto add = [&](const std::string& name, std::function<std::unique_ptr<ModuleBase>(DType)> make,
                       const std::vector<Shape>& inputs) {
    list.push_back({name, std::move(make), inputs});
  };
  add("Linear", [](DType d) { return boxed(Linear(12, 7, {.seed = 0, .dtype = d})); },
      {{4, 12}, {4, 5, 12}, {4, 2, 3, 12}});
  add(
      "LinearWithoutBias", [](DType d) { return boxed(Linear(12, 7, {.bias = false, .dtype = d})); }, rows);
  for (const std::int64_t kernel : {1, 3, 4, 5})
    for (const std::int64_t stride : {1, 2})
      for (const bool same : {false, true})
        for (const std::int64_t dilation : {1, 2}) {
          if ((kernel - 1) * dilation + 1 > 5 && !same) continue;
          add(
              fmt::format("Conv2D_k{}_s{}_d{}{}", kernel, stride, dilation, same ? "_same" : ""),
              [=](DType d) {
                return boxed(Conv2D(4, 6, kernel,
                                    {.stride = stride,
                                     .padding = same ? Padding("same") : Padding(0),
                                     .dilation = dilation,
                                     .dtype = d}));
              },
              images);
        }
  add(
      "Conv2D_uneven",
      [](DType d) {
        return boxed(Conv2D(4, 6, {2, 3}, {.stride = {2, 1}, .padding = Padding(2, 0, 1, 3), .dtype = d}));
      },
      images);
  add(
      "Conv2D_depthwise", [](DType d) { return boxed(Conv2D(4, 8, 3, {.padding = "same", .groups = 4, .dtype = d})); },
      images);
  add(
      "Conv2D_groups", [](DType d) { return boxed(Conv2D(4, 6, 3, {.groups = 2, .bias = false, .dtype = d})); },
      images);
  for (const bool ceil : {false, true})
    for (const std::int64_t padding : {0, 1}) {
      add(
          fmt::format("MaxPool2D_ceil{}_p{}", ceil, padding),
          [=](DType) { return boxed(MaxPool2D(3, {.stride = 2, .padding = padding, .ceil_mode = ceil})); }, images);
      for (const bool count : {false, true})
        add(
            fmt::format("AvgPool2D_ceil{}_p{}_count{}", ceil, padding, count),
            [=](DType) {
              return boxed(AvgPool2D(3, {.stride = 2, .padding = padding, .ceil_mode = ceil, .count_padding = count}));
            },
            images);
    }
  add(
      "MaxPool2D_dilated", [](DType) { return boxed(MaxPool2D(2, {.stride = 1, .padding = 2, .dilation = 3})); },
      images);
  add(
      "MaxPool2D_same", [](DType) { return boxed(MaxPool2D(2, {.stride = 1, .padding = "same"})); }, images);
  add(
      "AdaptiveAvgPool2D", [](DType) { return boxed(AdaptiveAvgPool2D(2)); }, images);
  add(
      "AdaptiveAvgPool2D_uneven",
      [](DType) {
        return boxed(AdaptiveAvgPool2D({3, 4}));
      },
      images);
  add(
      "GlobalAvgPool2D", [](DType) { return boxed(GlobalAvgPool2D()); }, images);
  for (const std::int64_t start : {0, 1, 2, -1})
    add(
        fmt::format("Flatten_{}", start < 0 ? "last" : std::to_string(start)),
        [=](DType) { return boxed(Flatten(start)); }, images);
  add("Unflatten", [](DType) { return boxed(Unflatten({2, 3, 2})); }, {{4, 12}, {4, 5, 12}});
  add(
      "Dropout", [](DType) { return boxed(Sequential(Dropout(0.5), ReLU())); }, rows);
  add(
      "BatchNorm1D",
      [](DType) {
        return warmed(BatchNorm1D(12), {32, 12});
      },
      rows);
  add(
      "BatchNorm2D",
      [](DType) {
        return warmed(BatchNorm2D(4), {8, 5, 5, 4});
      },
      images);
  add(
      "BatchNorm2DWithoutAffine",
      [](DType) {
        return warmed(BatchNorm2D(4, {.affine = false}), {8, 5, 5, 4});
      },
      images);
  add("LayerNorm", [](DType) { return boxed(LayerNorm(12)); }, {{4, 12}, {4, 5, 12}});
  add("LayerNormOfImages", [](DType) { return boxed(LayerNorm(Shape{7, 9, 4})); }, {{4, 7, 9, 4}});
  add(
      "LayerNormWithoutAffine", [](DType) { return boxed(LayerNorm(12, {.affine = false})); }, sequences);
  add(
      "GroupNorm", [](DType) { return boxed(GroupNorm(2, 4)); }, images);
  add(
      "ReLU", [](DType) { return boxed(ReLU()); }, rows);
  add(
      "Sigmoid", [](DType) { return boxed(Sigmoid()); }, rows);
  add(
      "Tanh", [](DType) { return boxed(Tanh()); }, rows);
  add(
      "GELU", [](DType) { return boxed(GELU()); }, rows);
  add(
      "SiLU", [](DType) { return boxed(SiLU()); }, rows);
  for (const std::int64_t axis : {-1, 1}) {
    add(fmt::format("Softmax_{}", axis == 1 ? "1" : "last"), [=](DType) { return boxed(Softmax(axis)); },
        {{4, 12}, {4, 5, 12}});
    add(fmt::format("LogSoftmax_{}", axis == 1 ? "1" : "last"), [=](DType) { return boxed(LogSoftmax(axis)); },
        {{4, 12}, {4, 5, 12}});
  }
  add(
      "Net",
      [](DType d) {
        return boxed(Sequential(Conv2D(4, 8, 3, {.padding = "same", .dtype = d}), ReLU(), MaxPool2D(2),
                                Conv2D(8, 8, 3, {.padding = "same", .dtype = d}), GELU(), GlobalAvgPool2D(),
                                Linear(8, 5, {.dtype = d}), LogSoftmax()));
      },
      images);
  return list;
}

class EveryModule : public testing::TestWithParam<Case> {};

void expect_agreement(const Case& c, const OnnxOptions& options, DType dtype, double allowed) {
  const TemporaryFolder folder;
  for (const Shape& input : c.inputs) {
    const auto model = c.make(dtype);
    model->eval();
    OnnxOptions checked = options;
    checked.check = true;
    checked.tolerance = allowed;
    const OnnxReport report = export_onnx(*model, folder.path() / "model.onnx", input, checked);
    ASSERT_EQ(report.agreements.size(), 1u);
    EXPECT_LE(report.agreements[0].relative, allowed) << to_string(input) << ", opset " << options.opset;
  }
}

// float32 sums in another order: 1e-5 relative to the larger of 1 and the value.
TEST_P(EveryModule, AgreesInFloat32AtTheFirstTheDefaultAndTheLastOpset) {
  for (const int opset : {onnx_first_opset, 17, onnx_last_opset})
    expect_agreement(GetParam(), {.opset = opset}, float32, 1e-5);
}
// Halves: two units of float16's last place at 1, and of bfloat16's, for edges that a fused op does not round at.
TEST_P(EveryModule, AgreesInFloat16) { expect_agreement(GetParam(), {.input_dtype = float16}, float16, 2e-3); }
TEST_P(EveryModule, AgreesInBfloat16) { expect_agreement(GetParam(), {.input_dtype = bfloat16}, bfloat16, 1.6e-2); }
TEST_P(EveryModule, AgreesUnderAutocast) {
  expect_agreement(GetParam(), {.autocast = float16}, float32, 2e-3);
  expect_agreement(GetParam(), {.autocast = bfloat16}, float32, 1.6e-2);
}

INSTANTIATE_TEST_SUITE_P(Onnx, EveryModule, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace everyo
