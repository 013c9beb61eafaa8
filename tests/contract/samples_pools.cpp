#include <algorithm>
#include <array>
#include <cmath>

#include "contract/samples.h"

// Samples of the pools over images [N, H, W, C].
namespace everyo_test::contract {
namespace {

// One axis of a pool, in the words of its definition.
struct Axis {
  std::int64_t input, output, window = 0, stride = 1, before = 0, after = 0, dilation = 1;
  bool adaptive = false;

  // Cells of the image that window o sees.
  [[nodiscard]] std::vector<std::int64_t> cells(std::int64_t o) const {
    std::vector<std::int64_t> list;
    for (std::int64_t cell = 0; cell < input; ++cell) {
      const std::int64_t distance = cell + before - o * stride;
      const double share = static_cast<double>(input) / static_cast<double>(output);
      const bool seen = adaptive ? cell >= static_cast<std::int64_t>(std::floor(static_cast<double>(o) * share)) &&
                                       cell < static_cast<std::int64_t>(std::ceil(static_cast<double>(o + 1) * share))
                                 : distance >= 0 && distance % dilation == 0 && distance / dilation < window;
      if (seen) list.push_back(cell);
    }
    return list;
  }
  // Those in the image or its padding.
  [[nodiscard]] std::int64_t padded(std::int64_t o) const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < window; ++i) count += o * stride + i < before + input + after ? 1 : 0;
    return count;
  }
};
using Axes2D = std::array<Axis, 2>;

// reduce(the window's values, the cells of image and padding it covers) for each window and channel.
template <class F>
Reference over_windows(const Axes2D& axes, F reduce) {
  return [axes, reduce](std::span<const Values> in) {
    const eo::Shape& x = in[0].shape;
    std::vector<double> out;
    for (std::int64_t n = 0; n < x[0]; ++n)
      for (std::int64_t oh = 0; oh < axes[0].output; ++oh)
        for (std::int64_t ow = 0; ow < axes[1].output; ++ow)
          for (std::int64_t c = 0; c < x[3]; ++c) {
            std::vector<double> values;
            for (const std::int64_t h : axes[0].cells(oh))
              for (const std::int64_t w : axes[1].cells(ow))
                values.push_back(in[0].v[static_cast<std::size_t>(((n * x[1] + h) * x[2] + w) * x[3] + c)]);
            out.push_back(reduce(values, static_cast<double>(axes[0].padded(oh) * axes[1].padded(ow))));
          }
    return out;
  };
}
double greatest(const std::vector<double>& v, double) { return *std::ranges::max_element(v); }
double total(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum;
}
double mean_of_image(const std::vector<double>& v, double) { return total(v) / static_cast<double>(v.size()); }
double mean_of_padded(const std::vector<double>& v, double cells) { return total(v) / cells; }

double seen(const Axis& axis) {
  std::size_t cells = 0;
  for (std::int64_t o = 0; o < axis.output; ++o) cells += axis.cells(o).size();
  return static_cast<double>(cells);
}
// Cells that all windows see, and windows.
double seen(const eo::Shape& x, const Axes2D& axes) {
  return static_cast<double>(x[0] * x[3]) * seen(axes[0]) * seen(axes[1]);
}
double windows(const eo::Shape& x, const Axes2D& axes) {
  return static_cast<double>(x[0] * x[3] * axes[0].output * axes[1].output);
}

Case max_case(const eo::Shape& x, eo::Size2D window, const eo::MaxPoolOptions& options, const Axes2D& axes) {
  return {.inputs = {{.shape = x}},
          .run = [=](Tensors in) { return eo::max_pool2d(in[0], window, options); },
          .reference = over_windows(axes, greatest),
          .flops = seen(x, axes) - windows(x, axes)};
}
Case average_case(const eo::Shape& x, eo::Size2D window, const eo::AvgPoolOptions& options, const Axes2D& axes) {
  return {.inputs = {{.shape = x}},
          .run = [=](Tensors in) { return eo::avg_pool2d(in[0], window, options); },
          .reference = over_windows(axes, options.count_padding ? mean_of_padded : mean_of_image),
          .flops = seen(x, axes)};
}
Case adaptive_case(const eo::Shape& x, eo::Size2D output) {
  const Axes2D axes{Axis{.input = x[1], .output = output.height, .adaptive = true},
                    Axis{.input = x[2], .output = output.width, .adaptive = true}};
  return {.inputs = {{.shape = x}},
          .run = [=](Tensors in) { return eo::adaptive_avg_pool2d(in[0], output); },
          .reference = over_windows(axes, mean_of_image),
          .flops = seen(x, axes)};
}

// What every windowed pool refuses.
template <class Pool>
std::vector<Refusal> refusals(const char* name, Pool pool) {
  const eo::Tensor x = eo::Tensor::ones({1, 4, 5, 2});
  return {{.run =
               [=] {
                 pool(eo::Tensor::ones({4, 5, 2}), 2, {});
               },
           .text = {name, "4-D tensor", "(4, 5, 2)"}},
          {.run = [=] { pool(x, eo::Size2D(0, 2), {}); }, .text = {name, "(0, 2)", "must be positive"}},
          {.run = [=] { pool(x, 2, {.stride = 0}); }, .text = {name, "stride", "must be positive"}},
          {.run = [=] { pool(x, 5, {}); }, .text = {name, "(5, 5)", "larger than the padded image (4, 5)"}},
          {.run = [=] { pool(x, 2, {.padding = -1}); }, .text = {name, "must not be negative"}},
          {.run = [=] { pool(x, 2, {.padding = 2}); }, .text = {name, "(2, 2, 2, 2)", "must be smaller"}},
          {.run = [=] { pool({}, 2, {}); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};
}

// Fields: input, output, window, stride, before, after, dilation.
Axes2D halves_of(std::int64_t height, std::int64_t width) {
  return {Axis{height, height / 2, 2, 2, 0, 0}, Axis{width, width / 2, 2, 2, 0, 0}};
}

}  // namespace

void add_pool_samples(SampleList& list) {
  Samples most{.op = "max_pool2d",
               .at =
                   [](std::int64_t n) {
                     return max_case({n, 4, 5, 3}, 2, {}, halves_of(4, 5));
                   },
               .large = 2003};
  most.cases = {
      max_case({2, 6, 4, 1}, 2, {}, halves_of(6, 4)),
      max_case({3, 4, 4, 17}, 2, {}, halves_of(4, 4)),
      max_case({1, 7, 6, 8}, 3, {.stride = 2, .padding = 1}, {Axis{7, 4, 3, 2, 1, 1}, Axis{6, 3, 3, 2, 1, 1}}),
      max_case({2, 5, 4, 3}, 3, {.stride = 1, .padding = "same"}, {Axis{5, 5, 3, 1, 1, 1}, Axis{4, 4, 3, 1, 1, 1}}),
      max_case({1, 7, 5, 2}, 2, {.ceil_mode = true}, {Axis{7, 4, 2, 2, 0, 0}, Axis{5, 3, 2, 2, 0, 0}}),
      max_case({1, 7, 8, 3}, {2, 3}, {.stride = eo::Size2D(1, 2), .dilation = {3, 2}},
               {Axis{7, 4, 2, 1, 0, 0, 3}, Axis{8, 2, 3, 2, 0, 0, 2}}),
      max_case({1, 6, 6, 4}, {1, 2}, {.stride = 3}, {Axis{6, 2, 1, 3, 0, 0}, Axis{6, 2, 2, 3, 0, 0}}),
      max_case({1, 17, 19, 1}, {17, 19}, {}, {Axis{17, 1, 17, 17, 0, 0}, Axis{19, 1, 19, 19, 0, 0}}),  // int32 winners
      max_case({2, 4, 4, 0}, 2, {}, halves_of(4, 4))};
  for (Case& c : most.cases) c.name = "max";
  most.refusals = refusals("max_pool2d", [](const eo::Tensor& x, eo::Size2D window, const eo::MaxPoolOptions& options) {
    eo::max_pool2d(x, window, options);
  });
  most.refusals.push_back(
      {.run =
           [] {
             eo::max_pool2d(eo::Tensor::ones({1, 1, 4, 1}), {2, 1}, {.padding = {1, 2, 0, 0}, .dilation = {3, 1}});
           },
       .text = {"max_pool2d", "window 0", "sees none"}});
  list.push_back(most);

  Samples mean{.op = "avg_pool2d",
               .at =
                   [](std::int64_t n) {
                     return average_case({n, 4, 5, 3}, 2, {}, halves_of(4, 5));
                   },
               .large = 2003};
  const Axes2D padded{Axis{7, 4, 3, 2, 1, 1}, Axis{6, 3, 3, 2, 1, 1}};
  const Axes2D further{Axis{7, 4, 3, 2, 1, 0}, Axis{4, 3, 3, 2, 1, 1}};  // ceil mode: behind the padding
  mean.cases = {average_case({2, 6, 4, 1}, 2, {}, halves_of(6, 4)),
                average_case({3, 4, 4, 17}, 2, {}, halves_of(4, 4)),
                average_case({1, 7, 6, 8}, 3, {.stride = 2, .padding = 1}, padded),
                average_case({1, 7, 6, 8}, 3, {.stride = 2, .padding = 1, .count_padding = true}, padded),
                average_case({1, 7, 4, 3}, 3, {.stride = 2, .padding = {1, 0, 1, 1}, .ceil_mode = true}, further),
                average_case({1, 7, 4, 3}, 3,
                             {.stride = 2, .padding = {1, 0, 1, 1}, .ceil_mode = true, .count_padding = true}, further),
                average_case({2, 5, 4, 3}, {3, 2}, {.stride = 1, .padding = "same", .count_padding = true},
                             {Axis{5, 5, 3, 1, 1, 1}, Axis{4, 4, 2, 1, 0, 1}}),
                average_case({1, 6, 6, 4}, {1, 2}, {.stride = 3}, {Axis{6, 2, 1, 3, 0, 0}, Axis{6, 2, 2, 3, 0, 0}}),
                average_case({1, 70, 3, 2}, {70, 3}, {}, {Axis{70, 1, 70, 70, 0, 0}, Axis{3, 1, 3, 3, 0, 0}})};
  mean.refusals = refusals("avg_pool2d", [](const eo::Tensor& x, eo::Size2D window, const eo::AvgPoolOptions& options) {
    eo::avg_pool2d(x, window, options);
  });
  list.push_back(mean);

  Samples adaptive{.op = "adaptive_avg_pool2d",
                   .at =
                       [](std::int64_t n) {
                         return adaptive_case({n, 4, 6, 3}, {2, 3});
                       },
                   .large = 2003};
  adaptive.cases = {adaptive_case({2, 5, 7, 3}, 1), adaptive_case({1, 5, 7, 17}, {3, 2}),
                    adaptive_case({2, 3, 2, 8}, {5, 4}), adaptive_case({1, 8, 6, 1}, {4, 1}),
                    adaptive_case({3, 1, 1, 2}, 1)};
  const eo::Tensor x = eo::Tensor::ones({1, 4, 5, 2});
  adaptive.refusals = {
      {.run =
           [] {
             eo::adaptive_avg_pool2d(eo::Tensor::ones({4, 5, 2}), 1);
           },
       .text = {"4-D", "(4, 5, 2)"}},
      {.run =
           [x] {
             eo::adaptive_avg_pool2d(x, {0, 2});
           },
       .text = {"(0, 2)", "must be positive"}},
      {.run =
           [] {
             eo::adaptive_avg_pool2d(eo::Tensor::ones({1, 0, 5, 2}), 1);
           },
       .text = {"(1, 0, 5, 2)", "at least one cell"}},
      {.run = [] { eo::adaptive_avg_pool2d({}, 1); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};
  list.push_back(adaptive);
}

}  // namespace everyo_test::contract
