#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <optional>

#include "everyo/nn.h"
#include "everyo/onnx.h"
#include "everyo/op.h"
#include "everyo/ops.h"
#include "onnx/refusal.h"
#include "onnx/symbols.h"
#include "support/temporary_folder.h"

// What is exported, what is refused, and what is left behind.
namespace everyo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace ox = onnx_export;

/// y = x + x here, and x * x in the file.
constexpr Record<> wrong_record{
    .name = "test_wrong",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const NoAttrs&) -> Specs { return in[0].spec(); },
    .forward =
        [](const Call& c, const NoAttrs&) {
          for (std::size_t i = 0; i < c.in[0].data<float>().size(); ++i)
            c.out[0].data<float>()[i] = 2 * c.in[0].data<float>()[i];
        },
    .backward = no("a test op"),
    .cost = [](const Inputs&, const Specs&, const NoAttrs&) -> Cost { return {.flops = 1, .bytes = 1}; },
    .onnx = [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      return {g.node("Mul", {v[0], v[0]}, v[0].spec)};
    },
    .composed = no("primitive")};

struct Wrong : Module<Wrong> {
  [[nodiscard]] Tensor forward(const Tensor& x) const { return apply<wrong_record>({}, x); }
};
struct Net : Module<Net> {
  void visit(Visitor& v) { v("first", first)("middle", middle)("last", last); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return last(middle(relu(first(x)))); }
  Linear first{4, 6, {.seed = 0}};
  Wrong middle;
  Linear last{6, 2, {.seed = 1}};
};

TEST(Export, ACheckThatFailsNamesWhereTheTwoPartAndLeavesNothing) {
  Net net;
  net.eval();
  const TemporaryFolder folder;
  EXPECT_THAT(
      refusal_of([&] {
        export_onnx(net, folder.path() / "net.onnx", {1, 4}, {.check = true});
      }),
      AllOf(HasSubstr("part first in module 'middle', op test_wrong"), HasSubstr("'output'"), HasSubstr("allowed")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Export, AFileThatIsThereOutlivesARefusal) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "net.onnx";
  std::ofstream(path) << "before";
  Net net;
  net.eval();
  (void)refusal_of([&] { export_onnx(net, path, {1, 4}, {.external_data_above = 0, .check = true}); });
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Export, OneTensorMayBeInputOutputAndTwoOutputs) {
  const TemporaryFolder folder;
  const Tensor weight = Tensor::full({3, 3}, 0.5);
  const OnnxFunction function = [&](std::span<const Tensor> in) {
    const Tensor y = matmul(in[0], weight);
    return std::vector<Tensor>{y, in[0], y, weight, y.detach()};
  };
  const OnnxInput input{"x", {float32, {2, 3}}};
  const OnnxReport report = export_onnx_traced(function, folder.path() / "f.onnx", std::span(&input, 1),
                                               {.check = true}, {{"weight", weight}});
  EXPECT_EQ(report.agreements.size(), 5u);
  const NamedTensors out = run_onnx(folder.path() / "f.onnx", {{"x", Tensor::ones({4, 3})}});
  EXPECT_THAT(out[0].second.to_vector(), testing::Each(1.5));
  EXPECT_EQ(out[2].second.to_vector(), out[0].second.to_vector());
  EXPECT_EQ(out[3].second.shape(), (Shape{3, 3}));
}

TEST(Export, WhatIsChangedInPlaceIsRefused) {
  const TemporaryFolder folder;
  const OnnxInput input{"x", {float32, {2, 3}}};
  const auto refused = [&](const OnnxFunction& function) {
    return refusal_of([&] { export_onnx_traced(function, folder.path() / "f.onnx", std::span(&input, 1)); });
  };
  EXPECT_THAT(refused([](std::span<const Tensor> in) {
                const Tensor y = relu(in[0]);
                y.assign(Tensor::ones(y.shape()));
                return std::vector<Tensor>{y + 1.0};
              }),
              AllOf(HasSubstr("relu"), HasSubstr("changed in place")));
  EXPECT_THAT(refused([](std::span<const Tensor> in) {
                in[0].assign(Tensor::ones(in[0].shape()));
                return std::vector<Tensor>{in[0] + 1.0};
              }),
              HasSubstr("changes input 'x' in place"));
  const Tensor offset = Tensor::ones({3});
  EXPECT_THAT(refused([&](std::span<const Tensor> in) {
                offset.assign(Tensor::full({3}, 2));
                const Tensor y = in[0] + offset;
                offset.assign(Tensor::full({3}, 5));
                return std::vector<Tensor>{y * offset};
              }),
              AllOf(HasSubstr("add"), HasSubstr("reads a value that was changed in place")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

/// Exports the function with a check, runs the file on other inputs, and compares to the bit.
void expect_same(const OnnxFunction& function, const std::vector<OnnxInput>& inputs, const NamedTensors& values,
                 const OnnxOptions& options = {}) {
  const TemporaryFolder folder;
  OnnxOptions checked = options;
  checked.check = true;
  export_onnx_traced(function, folder.path() / "f.onnx", inputs, checked);
  std::vector<Tensor> tensors;
  for (const auto& [name, value] : values) tensors.push_back(value);
  const std::vector<Tensor> ours = function(tensors);
  const NamedTensors theirs = run_onnx(folder.path() / "f.onnx", values);
  ASSERT_EQ(theirs.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(theirs[i].second.spec(), ours[i].spec());
    EXPECT_EQ(theirs[i].second.to_vector(), ours[i].to_vector());
  }
}

TEST(Export, RangesOfAnOpenAxisAreKeptAsAskedFor) {
  const std::vector<OnnxInput> inputs{{"x", {float32, {2, 3}}}};
  const Tensor x =
      Tensor::from<float>(std::vector<float>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17,
                                             18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35},
                          {12, 3});
  using Bounds = std::optional<std::int64_t>;
  const Bounds none;
  for (const Slice& range :
       {Slice{none, 10},       Slice{-10, none},     Slice{5, none},
        Slice{none, 2},        Slice{none, none, 2}, Slice{none, none, 5},
        Slice{1, none},        Slice{none, -1},      Slice{none, none, -1},
        Slice{none, none, -7}, Slice{8, 1, -3},      Slice{-2, -20, -1},
        Slice{-2, none, -1},   Slice{-3, -8, -2},    Slice{-4, -2, -1},
        Slice{-2, 1, -1},      Slice{-1, -4, -1},    Slice{3, std::numeric_limits<std::int64_t>::max(), -1},
        Slice{3, 3},           Slice::at(0),         Slice::at(-1)})
    expect_same([&](std::span<const Tensor> in) { return std::vector<Tensor>{slice(in[0], {range}) * 2.0}; }, inputs,
                {{"x", x}});
  for (const std::int64_t index : {1, -2})
    expect_same([&](std::span<const Tensor> in) { return std::vector<Tensor>{slice(in[0], {Slice::at(index)}) * 2.0}; },
                inputs, {{"x", x}}, {.check_batches = {2, 7}});
  expect_same(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{select(in[0], -1, 0), select(in[0], 1, -1)};
      },
      inputs, {{"x", x}});
}

TEST(Export, AnAxisHasTheLastNameItWasGiven) {
  const OnnxFunction function = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{in[0] * 2.0, broadcast_to(slice(in[1], {Slice::at(0)}), {in[1].shape()[0], 5, 4})};
  };
  expect_same(function, {{"a", {float32, {2, 3}}}, {"b", {float32, {2, 4}}}},
              {{"a", Tensor::ones({9, 3})}, {"b", Tensor::ones({6, 4})}}, {.symbolic = {{"a", 0, "rows"}}});
}

TEST(Export, NamesOfSizesMayLookLikeSumsAndEdges) {
  const OnnxFunction function = [](std::span<const Tensor> in) {
    const std::int64_t batch = in[0].shape()[0], time = in[1].shape()[1];
    return std::vector<Tensor>{broadcast_to(slice(in[0], {Slice::at(0), Slice::at(0)}), {batch + 1, time, batch, 3})};
  };
  for (const char* name : {"batch + 1", "batch/shape", "shape/batch"})
    expect_same(function, {{"a", {float32, {2, 3}}}, {"b", {float32, {2, 4}}}},
                {{"a", Tensor::ones({3, 3})}, {"b", Tensor::ones({3, 2})}}, {.symbolic = {{"b", 1, name}}});
}

TEST(Export, AnInputOrOutputCalledAsAWeightIsRefused) {
  Linear linear(3, 3);
  linear.eval();
  const TemporaryFolder folder;
  for (const OnnxOptions& options : {OnnxOptions{.input_name = "weight"}, OnnxOptions{.output_name = "bias"}})
    EXPECT_THAT(refusal_of([&] {
                  export_onnx(linear, folder.path() / "f.onnx", {1, 3}, options);
                }),
                HasSubstr("call it otherwise"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Export, WhatHasNoElementsIsReshaped) {
  for (const int opset : {13, 22})
    expect_same(
        [](std::span<const Tensor> in) {
          return std::vector<Tensor>{reshape(in[0], {0, in[0].shape()[0], 7}),
                                     reshape(in[0], {in[0].shape()[0], 3, 0})};
        },
        {{"x", {int64, {2, 0}}}}, {{"x", Tensor::empty({int64, {4, 0}})}}, {.opset = opset});
}

TEST(Export, BytesWrapAndRealsBecomeTheirEnds) {
  const Tensor bytes = cast(Tensor::from<std::int64_t>({0, 1, 200, 255}, {4}), uint8);
  const Tensor large = Tensor::from<std::int64_t>({-1, 300, std::int64_t{1} << 40, -(std::int64_t{1} << 40)}, {4});
  const Tensor reals = Tensor::from<float>({-1.5F, 255.9F, 1e9F, -1e9F}, {4});
  for (const int opset : {13, 22}) {
    expect_same(
        [](std::span<const Tensor> in) {
          return std::vector<Tensor>{-in[0], scale(in[0], -1, 0)};
        },
        {{"x", {uint8, {2}}, 256}}, {{"x", bytes}}, {.opset = opset});
    expect_same(
        [](std::span<const Tensor> in) {
          return std::vector<Tensor>{cast(in[0], uint8), cast(in[0], int32)};
        },
        {{"x", {int64, {2}}}}, {{"x", large}}, {.opset = opset});
    expect_same(
        [](std::span<const Tensor> in) {
          return std::vector<Tensor>{cast(in[0], uint8), cast(cast(in[0], float16), uint8)};
        },
        {{"x", {float32, {2}}}}, {{"x", reals}}, {.opset = opset});
  }
}

// What a batch of two or three does not show.
TEST(Export, AModelThatTreatsLargeBatchesOtherwiseIsRefused) {
  const TemporaryFolder folder;
  const OnnxInput input{"x", {float32, {2, 3}}};
  const auto refused = [&](const OnnxFunction& function) {
    return refusal_of([&] { export_onnx_traced(function, folder.path() / "f.onnx", std::span(&input, 1)); });
  };
  EXPECT_THAT(refused([](std::span<const Tensor> in) {
                return std::vector<Tensor>{in[0].shape()[0] > 8 ? relu(in[0]) : sigmoid(in[0])};
              }),
              HasSubstr("depend on the input's values or sizes"));
  EXPECT_THAT(refused([](std::span<const Tensor> in) {
                const std::int64_t n = std::min<std::int64_t>(in[0].shape()[0], 10);
                return std::vector<Tensor>{reshape(slice(in[0], {{0, n}}) + 1.0, {n, 3, 1})};
              }),
              HasSubstr("[export_onnx]"));
}

using Sizes = std::vector<std::vector<std::int64_t>>;
const Sizes one_size{{2}, {3}, {5}}, two_sizes{{2, 4}, {3, 4}, {2, 5}, {5, 7}};

TEST(Extents, AreSumsOrProductsThatTheLastRunConfirms) {
  const auto text = [](const Sizes& sizes, const std::vector<std::int64_t>& values) -> std::string {
    ox::Symbols symbols;
    symbols.list = {{"batch", "x"}, {"time", "x"}};
    const auto extent = ox::extent_of(values, sizes);
    if (!extent) return "none";
    return extent->fixed() ? std::to_string(extent->constant) : extent->text(symbols);
  };
  EXPECT_EQ(text(one_size, {7, 7, 7}), "7");
  EXPECT_EQ(text(one_size, {2, 3, 5}), "batch");
  EXPECT_EQ(text(one_size, {5, 7, 11}), "2*batch + 1");
  EXPECT_EQ(text(one_size, {1, 2, 4}), "batch - 1");
  EXPECT_EQ(text(one_size, {4, 9, 25}), "batch*batch");
  EXPECT_EQ(text(one_size, {1, 1, 2}), "none");  // half of it, rounded down
  EXPECT_EQ(text(two_sizes, {8, 12, 10, 35}), "batch*time");
  EXPECT_EQ(text(two_sizes, {24, 36, 30, 105}), "3*batch*time");
  EXPECT_EQ(text(two_sizes, {6, 7, 7, 12}), "batch + time");
  EXPECT_EQ(text(two_sizes, {6, 7, 7, 13}), "none");
}

}  // namespace
}  // namespace everyo
