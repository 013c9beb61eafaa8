#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/numeric_gradient.h"

namespace everyo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// [N, H, W, C] of 0, 1, 2, …
Tensor counted(const Shape& shape, DType dtype = float32) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0);
  return cast(Tensor::from<double>(std::span<const double>(values), shape), dtype);
}

TEST(PoolOps, Values) {
  const Tensor x = counted({1, 4, 4, 1});
  EXPECT_THAT(max_pool2d(x).to_vector(), ElementsAre(5, 7, 13, 15));
  EXPECT_THAT(avg_pool2d(x).to_vector(), ElementsAre(2.5, 4.5, 10.5, 12.5));
  EXPECT_EQ(max_pool2d(x, 3, {.stride = 1}).shape(), (Shape{1, 2, 2, 1}));
  EXPECT_THAT(max_pool2d(x, 3, {.stride = 1}).to_vector(), ElementsAre(10, 11, 14, 15));
  EXPECT_EQ(max_pool2d(x, 2, {.stride = 1, .padding = "same"}).shape(), x.shape());
  EXPECT_THAT(max_pool2d(x, 2, {.stride = 1, .dilation = 3}).to_vector(), ElementsAre(15));
  EXPECT_THAT(adaptive_avg_pool2d(x, {2, 1}).to_vector(), ElementsAre(3.5, 11.5));
  EXPECT_THAT(adaptive_avg_pool2d(x, {1, 3}).to_vector(), ElementsAre(6.5, 7.5, 8.5));  // columns 0-1, 1-2, 2-3
  const Tensor global = global_avg_pool2d(counted({2, 2, 2, 2}));
  EXPECT_EQ(global.shape(), (Shape{2, 2}));
  EXPECT_THAT(global.to_vector(), ElementsAre(3, 4, 11, 12));
  EXPECT_EQ(max_pool2d(counted({1, 4, 4, 1}, int64)).dtype(), float32);  // as exp of integers
  EXPECT_EQ(max_pool2d(Tensor::ones({0, 4, 4, 3})).shape(), (Shape{0, 2, 2, 3}));
  EXPECT_EQ(global_avg_pool2d(Tensor::ones({0, 4, 4, 3})).shape(), (Shape{0, 3}));
}

TEST(PoolOps, AveragesDivideByTheCellsOfTheImageUnlessPaddingCounts) {
  const Tensor x = Tensor::ones({1, 3, 3, 1});
  for (const double v : avg_pool2d(x, 3, {.stride = 1, .padding = 1}).to_vector()) EXPECT_EQ(v, 1);
  const Tensor counting = avg_pool2d(x * 9, 3, {.stride = 1, .padding = 1, .count_padding = true});
  EXPECT_THAT(counting.to_vector(), ElementsAre(4, 6, 4, 6, 9, 6, 4, 6, 4));
  // What ceil mode reaches over behind the padding counts for neither: the last window has 2 of its 3 rows and columns.
  const Tensor last =
      avg_pool2d(Tensor::full({1, 4, 4, 1}, 1), 3, {.stride = 2, .ceil_mode = true, .count_padding = true});
  EXPECT_THAT(last.to_vector(), ElementsAre(1, 1, 1, 1));
}

TEST(PoolOps, TheFirstWinnerTakesTheGradient) {
  const Tensor x = Tensor::ones({1, 2, 4, 1}).set_requires_grad();
  sum(max_pool2d(x)).backward();
  EXPECT_THAT(x.grad().to_vector(), ElementsAre(1, 0, 1, 0, 0, 0, 0, 0));
  // A cell that wins several windows gets the sum.
  const Tensor peak = Tensor::from<float>({0, 0, 0, 0, 5, 0, 0, 0, 0}, {1, 3, 3, 1}).set_requires_grad();
  sum(max_pool2d(peak, 2, {.stride = 1})).backward();
  EXPECT_THAT(peak.grad().to_vector(), ElementsAre(0, 0, 0, 0, 4, 0, 0, 0, 0));
}

TEST(PoolOps, GradientsOfEveryOption) {
  const Tensor x = uniform_leaf({2, 5, 6, 3}, 1);
  for (const bool ceil_mode : {false, true})
    for (const Padding& padding : {Padding(), Padding(1), Padding("same"), Padding(0, 1, 1, 0)}) {
      check_gradients(
          [&] {
            return max_pool2d(x, {3, 2}, {.stride = 2, .padding = padding, .ceil_mode = ceil_mode});
          },
          {x});
      for (const bool counts : {false, true})
        check_gradients(
            [&] {
              return avg_pool2d(x, {3, 2},
                                {.stride = 2, .padding = padding, .ceil_mode = ceil_mode, .count_padding = counts});
            },
            {x});
    }
  check_gradients([&] { return max_pool2d(x, 2, {.stride = 1, .dilation = 2}); }, {x});
  check_gradients([&] { return adaptive_avg_pool2d(x, {3, 4}); }, {x});
  check_gradients([&] { return adaptive_avg_pool2d(x, {7, 8}); }, {x});
  check_gradients([&] { return global_avg_pool2d(x); }, {x});
}

// numerics N11.
TEST(PoolOps, N11_GlobalAverageOfManyFloat16OnesIsOne) {
  const Tensor x = Tensor::ones({1, 280, 250, 2}, float16);
  EXPECT_THAT(global_avg_pool2d(x).to_vector(), ElementsAre(1, 1));
  EXPECT_THAT(avg_pool2d(x, {280, 250}).to_vector(), ElementsAre(1, 1));
}

// python Y09.
TEST(PoolOps, Y09_AWindowWhollyInThePaddingIsRefused) {
  const Tensor x = Tensor::ones({1, 4, 4, 1});
  EXPECT_THAT(message_of<ShapeError>([&] { max_pool2d(x, 2, {.padding = 2}); }),
              AllOf(HasSubstr("[max_pool2d] padding is (2, 2, 2, 2)"), HasSubstr("(2, 2) cells"),
                    HasSubstr("lies wholly in it")));
  EXPECT_THAT(message_of<ShapeError>([&] {
                avg_pool2d(x, {3, 1}, {.padding = {0, 0, 1, 0}});
              }),
              HasSubstr("must be smaller"));
  // Every padding that is allowed gives numbers.
  for (std::int64_t window = 1; window <= 4; ++window)
    for (std::int64_t padding = 0; padding < window; ++padding)
      for (const bool ceil_mode : {false, true})
        for (std::int64_t stride = 1; stride <= 5; ++stride) {
          for (const double v :
               max_pool2d(x, window, {.stride = stride, .padding = padding, .ceil_mode = ceil_mode}).to_vector())
            ASSERT_EQ(v, 1) << window << padding << stride;
          for (const double v :
               avg_pool2d(x, window, {.stride = stride, .padding = padding, .ceil_mode = ceil_mode}).to_vector())
            ASSERT_EQ(v, 1) << window << padding << stride;
        }
}

// onnx O04: the last window of ceil mode starts in the image or the padding in front of it.
TEST(PoolOps, O04_CeilModeHasNoWindowBehindTheImage) {
  const std::vector<std::int64_t> sizes{1, 2, 2, 2, 3, 3};  // window 3, stride 3, padding 1 over 2..7 cells
  for (std::int64_t size = 2; size <= 7; ++size) {
    const Tensor y = max_pool2d(counted({1, size, size, 1}), 3, {.stride = 3, .padding = 1, .ceil_mode = true});
    EXPECT_EQ(y.shape()[1], sizes[static_cast<std::size_t>(size - 2)]) << size;
    for (const double v : y.to_vector()) EXPECT_TRUE(std::isfinite(v)) << size;
    onnx::Graph graph;
    const Tensor x = Tensor::ones({1, size, size, 1});
    Tracer tracer;
    {
      const Scoped<&Context::tracer> traced(&tracer);
      max_pool2d(x, 3, {.stride = 3, .padding = 1, .ceil_mode = true});
    }
    const Tracer::Step& step = tracer.steps.at(0);
    step.op->onnx(graph, {{"x", x.spec()}}, step.attrs.get());
    ASSERT_EQ(graph.nodes.size(), 3u);  // Transpose, MaxPool, Transpose
    const onnx::Node& pool = graph.nodes[1];
    EXPECT_EQ(pool.type, "MaxPool");
    for (const onnx::Attribute& attribute : pool.attributes) {
      EXPECT_NE(attribute.name, "ceil_mode");
      if (attribute.name != "pads") continue;
      const auto& pads = std::get<std::vector<std::int64_t>>(attribute.value);
      EXPECT_EQ((size + pads[0] + pads[2] - 3) / 3 + 1, y.shape()[1]);  // the runtime's floor gives the same size
      EXPECT_LT(pads[2], 3);
    }
  }
}

TEST(PoolOps, WinnersAreKeptForGradientsOnly) {
  const auto outputs = [](const Tensor& x) {
    Tracer tracer;
    const Scoped<&Context::tracer> traced(&tracer);
    max_pool2d(x);
    return tracer.steps.at(0).out.size();
  };
  const Tensor x = Tensor::ones({1, 4, 4, 3});
  EXPECT_EQ(outputs(x), 1u);
  x.set_requires_grad();
  EXPECT_EQ(outputs(x), 2u);
  const NoGrad off;
  EXPECT_EQ(outputs(x), 1u);
}

TEST(PoolOps, Refusals) {
  const Tensor x = Tensor::ones({1, 4, 4, 1});
  EXPECT_THAT(message_of<ShapeError>([] {
                max_pool2d(Tensor::ones({4, 4}));
              }),
              HasSubstr("[max_pool2d] x has shape (4, 4); it must be a 4-D tensor"));
  EXPECT_THAT(message_of<ShapeError>([&] { avg_pool2d(x, 5); }), HasSubstr("larger than the padded image (4, 4)"));
  EXPECT_THAT(message_of<ShapeError>([&] { max_pool2d(x, 2, {.dilation = 4}); }),
              AllOf(HasSubstr("(5, 5) cells"), HasSubstr("larger than the padded")));
  EXPECT_THAT(message_of<ShapeError>([&] { max_pool2d(x, 2, {.padding = "full"}); }), HasSubstr("Unknown padding"));
  const std::int64_t huge = 5000;
  EXPECT_THAT(message_of<ShapeError>([&] {
                max_pool2d(Tensor::meta({float32, {1, huge, huge, 1}}), huge);
              }),
              HasSubstr("25000000 cells"));
}

}  // namespace
}  // namespace everyo
