#include <algorithm>

#include "contract/samples.h"

// Samples of the ops on images [N, H, W, C].
namespace everyo_test::contract {
namespace {

// Where windows lie over one axis.
struct Way {
  std::int64_t input, window, stride, dilation, before, output;
};
Way way_of(std::int64_t input, std::int64_t window, std::int64_t stride, std::int64_t dilation, std::int64_t before,
           std::int64_t after, bool same) {
  const std::int64_t extent = (window - 1) * dilation + 1;
  if (!same) return {input, window, stride, dilation, before, (input + before + after - extent) / stride + 1};
  const std::int64_t output = (input + stride - 1) / stride;
  return {input, window, stride, dilation, std::max<std::int64_t>((output - 1) * stride + extent - input, 0) / 2,
          output};
}

// ---- convolutions ----

std::vector<double> convolved(std::span<const Values> in, const Way& h, const Way& w, std::int64_t groups, bool bias,
                              bool relu) {
  const Values &x = in[0], &weight = in[1];
  const std::int64_t channels = x.shape[3], c = weight.shape[2], o = weight.shape[3];
  std::vector<double> y;
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t row = 0; row < h.output; ++row)
      for (std::int64_t column = 0; column < w.output; ++column)
        for (std::int64_t k = 0; k < o; ++k) {
          double sum = bias ? in[2].v[static_cast<std::size_t>(k)] : 0;
          for (std::int64_t i = 0; i < h.window; ++i)
            for (std::int64_t j = 0; j < w.window; ++j) {
              const std::int64_t at_h = row * h.stride + i * h.dilation - h.before;
              const std::int64_t at_w = column * w.stride + j * w.dilation - w.before;
              if (at_h < 0 || at_h >= h.input || at_w < 0 || at_w >= w.input) continue;
              for (std::int64_t d = 0; d < c; ++d) {
                const std::int64_t from = ((n * h.input + at_h) * w.input + at_w) * channels + k / (o / groups) * c + d;
                sum += x.v[static_cast<std::size_t>(from)] *
                       weight.v[static_cast<std::size_t>(((i * w.window + j) * c + d) * o + k)];
              }
            }
          y.push_back(relu ? std::max(sum, 0.0) : sum);
        }
  return y;
}

Case conv2d_case(const eo::Shape& x, const eo::Shape& weight, bool bias, const eo::Conv2dOptions& options) {
  const eo::Padding& p = options.padding;
  const bool same = p.kind == eo::Padding::Kind::same, relu = options.activation == eo::Activation::relu;
  const Way h = way_of(x[1], weight[0], options.stride.height, options.dilation.height, p.top, p.bottom, same),
            w = way_of(x[2], weight[1], options.stride.width, options.dilation.width, p.left, p.right, same);
  Case c{.inputs = {{.shape = x}, {.shape = weight, .low = -1, .high = 1}},
         .run = [=](Tensors in) { return eo::conv2d(in[0], in[1], bias ? in[2] : eo::Tensor(), options); },
         .reference = [=](std::span<const Values> in) { return convolved(in, h, w, options.groups, bias, relu); },
         // Sums of up to 150 products of up to 2; a weight's gradient of up to 900.
         .tolerance = {.float32 = 2e-5}};
  if (bias) c.inputs.push_back({.shape = {weight[3]}, .low = -1, .high = 1});
  c.flops = static_cast<double>(x[0] * h.output * w.output * weight[3]) *
            static_cast<double>(2 * weight[0] * weight[1] * weight[2] + bias + relu);
  return c;
}

// Odd and even sizes, every option, channel counts below, at and above a vector's.
std::vector<Case> conv2d_cases(eo::Activation activation) {
  const auto with = [=](eo::Conv2dOptions options) {
    options.activation = activation;
    return options;
  };
  return {conv2d_case({2, 5, 4, 3}, {3, 3, 3, 4}, false, with({})),
          conv2d_case({1, 1, 1, 1}, {1, 1, 1, 1}, true, with({})),
          conv2d_case({3, 6, 7, 2}, {1, 1, 2, 17}, true, with({.stride = {2, 3}})),
          conv2d_case({2, 7, 6, 3}, {3, 2, 3, 5}, true, with({.stride = 2, .padding = "same"})),
          conv2d_case({2, 5, 5, 2}, {4, 3, 2, 3}, true, with({.padding = {0, 2, 1, 3}})),
          conv2d_case({2, 7, 9, 2}, {3, 3, 2, 2}, false, with({.padding = 1, .dilation = {2, 3}})),
          conv2d_case({2, 5, 4, 6}, {3, 3, 2, 9}, true, with({.padding = 1, .groups = 3})),
          conv2d_case({2, 4, 5, 16}, {3, 3, 1, 16}, true, with({.padding = "same", .groups = 16})),
          conv2d_case({2, 6, 6, 16}, {3, 3, 16, 32}, true, with({.padding = "same"})),
          conv2d_case({2, 0, 3, 2}, {3, 3, 2, 2}, true, with({.padding = "same"}))};
}

std::vector<Refusal> conv2d_refusals(eo::Activation activation) {
  using eo::Tensor;
  const auto refused = [=](const eo::Shape& x, const eo::Shape& weight, std::vector<std::string> text,
                           eo::Conv2dOptions options = {}, const Tensor& bias = {}) {
    options.activation = activation;
    text.emplace_back("[conv2d]");
    return Refusal{.run = [=] { eo::conv2d(Tensor::ones(x), Tensor::ones(weight), bias, options); },
                   .text = std::move(text)};
  };
  return {refused({5, 4, 3}, {3, 3, 3, 4}, {"4-D tensor", "(5, 4, 3)"}),
          refused({2, 5, 4, 3}, {3, 3, 4}, {"4-D kernel", "(3, 3, 4)"}),
          refused({2, 5, 4, 3}, {3, 3, 4, 8}, {"3 channel(s)", "expects 4"}),
          refused({2, 5, 4, 6}, {3, 3, 2, 9}, {"6 channel(s)", "expects 2"}, {.groups = 1}),
          refused({2, 5, 4, 6}, {3, 3, 2, 8}, {"do not divide", "3 groups"}, {.groups = 3}),
          refused({2, 5, 4, 6}, {3, 3, 2, 8}, {"groups is 0", "must be positive"}, {.groups = 0}),
          refused({2, 5, 4, 3}, {6, 3, 3, 4}, {"does not fit", "6 by 3", "5 by 4"}),
          refused({2, 5, 4, 3}, {3, 3, 3, 4}, {"stride is (0, 1)", "must be positive"}, {.stride = {0, 1}}),
          refused({2, 5, 4, 3}, {3, 3, 3, 4}, {"dilation", "must be positive"}, {.dilation = 0}),
          refused({2, 5, 4, 3}, {3, 0, 3, 4}, {"window is (3, 0)", "must be positive"}),
          refused({2, 5, 4, 3}, {3, 3, 3, 4}, {"padding", "must not be negative"}, {.padding = -1}),
          refused({2, 5, 4, 3}, {3, 3, 3, 4}, {"bias must have shape (4,)", "(3,)"}, {}, Tensor::ones({3})),
          {.run =
               [=] {
                 eo::conv2d({}, Tensor::ones({3, 3, 3, 4}), {}, {.activation = activation});
               },
           .text = {"undefined"},
           .kind = eo::ErrorKind::state},
          {.run =
               [=] {
                 eo::conv2d(Tensor::ones({1, 3, 3, 1}, eo::int32), Tensor::ones({3, 3, 1, 1}, eo::int32), {},
                            {.activation = activation});
               },
           .text = {"conv2d", "int32", "floating"},
           .kind = eo::ErrorKind::dtype}};
}

void add_convolution_samples(SampleList& list) {
  for (const bool relu : {false, true}) {
    const eo::Activation activation = relu ? eo::Activation::relu : eo::Activation::none;
    list.push_back(
        {.op = relu ? "conv2d_relu" : "conv2d",
         .at =
             [=](std::int64_t n) {
               return conv2d_case({n, 5, 4, 3}, {3, 2, 3, 4}, true, {.padding = 1, .activation = activation});
             },
         .cases = conv2d_cases(activation),
         .refusals = conv2d_refusals(activation),
         .large = 2003});  // 8 chunks
  }
}

}  // namespace

void add_image_samples(SampleList& list) { add_convolution_samples(list); }

}  // namespace everyo_test::contract
