#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/reduce.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"
#include "ops/pool_shape.h"

// max_pool2d, avg_pool2d, adaptive_avg_pool2d: x [N, H, W, C] -> y [N, OH, OW, C]; g is y's gradient.
namespace everyo::inline v1 {
namespace {

// ---- lowering: pools of ONNX take [N, C, H, W] ----------------------------------------------------------------------

Shape channels_first(const Shape& s) { return {s[0], s[3], s[1], s[2]}; }

// `lower` makes y [N, C, OH, OW] of x [N, C, H, W], with the spec it is given.
template <class F>
onnx::Values between_transposes(onnx::Graph& g, const onnx::Value& x, const Shape& y, F&& lower) {
  const DType dtype = x.spec.dtype;
  using List = std::vector<std::int64_t>;
  const onnx::Value in = g.node("Transpose", {x}, {dtype, channels_first(x.spec.shape)}, {{"perm", List{0, 3, 1, 2}}});
  const onnx::Value out = lower(in, Spec{dtype, channels_first(y)});
  return {g.node("Transpose", {out}, {dtype, y}, {{"perm", List{0, 2, 3, 1}}})};
}

// x [N, C, H, W] with the padding of both axes written out, holding `value`.
onnx::Value padded(onnx::Graph& g, const onnx::Value& x, kernels::PoolAxis& h, kernels::PoolAxis& w, double value) {
  const onnx::Value pads = g.integers({0, 0, h.before, w.before, 0, 0, h.after, w.after});
  for (kernels::PoolAxis* axis : {&h, &w}) {
    axis->input += axis->before + axis->after;
    axis->before = axis->after = 0;
  }
  onnx::Values in{x, pads};
  if (value != 0) in.push_back(g.constant(Tensor::scalar(value, x.spec.dtype)));
  const Shape& from = x.spec.shape;
  return g.node("Pad", in, {x.spec.dtype, {from[0], from[1], h.input, w.input}});
}

// ONNX's own ceil mode counts windows that start behind the image, so the padding behind is written out instead: as
// much as the last window reaches over.
std::int64_t padding_behind(const kernels::PoolAxis& a) {
  return std::max<std::int64_t>((a.output - 1) * a.stride + a.extent() - a.before - a.input, 0);
}
std::vector<onnx::Attribute> window_attributes(const kernels::PoolShape& s) {
  using List = std::vector<std::int64_t>;
  const kernels::PoolAxis &h = s.height, &w = s.width;
  return {{"kernel_shape", List{h.window, w.window}},
          {"strides", List{h.stride, w.stride}},
          {"pads", List{h.before, w.before, padding_behind(h), padding_behind(w)}}};
}

// ---- max_pool2d -----------------------------------------------------------------------------------------------------

struct MaxAttrs {
  Size2D window;
  WindowOptions options;
  bool keeps_winners = false;  // a second output for backward: 1 byte an output, where x would be many elements
};
Attributes describe(const MaxAttrs& a) {
  return {{"window", attribute_of(a.window)},
          {"stride", attribute_of(a.options.stride)},
          {"padding", attribute_of(a.options.padding)},
          {"dilation", attribute_of(a.options.dilation)},
          {"ceil_mode", a.options.ceil_mode}};
}

kernels::PoolShape shape_of(const Shape& x, const MaxAttrs& a) {
  return pool_shape("max_pool2d", x, a.window, a.options);
}

Specs infer_max(const Inputs& in, const MaxAttrs& a) {
  require_floating("max_pool2d", in[0]);
  const Shape y = pooled(shape_of(in[0].shape(), a));
  const std::int64_t cells = a.window.height * a.window.width;
  if (cells > kernels::most_window_cells)
    throw ShapeError(
        fmt::format("[max_pool2d] the window ({}, {}) has {} cells, and {} is the most; take max() over "
                    "the axes instead",
                    a.window.height, a.window.width, cells, kernels::most_window_cells));
  const Spec spec{in[0].dtype(), y};
  if (!a.keeps_winners) return spec;
  return {spec, Spec{kernels::winner_dtype(cells), y}};
}

Cost cost_of_max(const Inputs& in, const Specs& out, const MaxAttrs& a) {
  Cost cost = elementwise_cost(in, out, 0);
  cost.flops = cells_seen(shape_of(in[0].shape(), a)) - static_cast<double>(out[0].shape.elements());
  if (out.size() == 2) cost.bytes += static_cast<double>(out[1].bytes());
  return cost;
}

onnx::Values lower_max(onnx::Graph& g, const onnx::Values& in, const MaxAttrs& a) {
  const kernels::PoolShape s = shape_of(in[0].spec.shape, a);
  return between_transposes(g, in[0], pooled(s), [&](onnx::Value x, const Spec& y) {
    kernels::PoolShape rest = s;
    // The runtime takes no padding as wide as the window is in cells, whatever the dilation.
    const auto too_wide = [](const kernels::PoolAxis& axis) {
      return std::max(axis.before, padding_behind(axis)) >= axis.window;
    };
    if (too_wide(s.height) || too_wide(s.width)) {
      rest.height.after = padding_behind(s.height);
      rest.width.after = padding_behind(s.width);
      x = padded(g, x, rest.height, rest.width, -std::numeric_limits<double>::infinity());
    }
    std::vector<onnx::Attribute> attributes = window_attributes(rest);
    attributes.push_back({"dilations", std::vector<std::int64_t>{s.height.dilation, s.width.dilation}});
    return g.node("MaxPool", {x}, y, attributes);
  });
}

constexpr Record<MaxAttrs> max_pool2d_record{
    .name = "max_pool2d",
    .policy = CastPolicy::follow,
    .saves = {.outputs = {0, for_grad_of(0)}},
    .infer = infer_max,
    .forward =
        [](const Call& c, const MaxAttrs& a) {
          const Tensor& x = c.in[0];
          kernels::max_pool(x.dtype(), shape_of(x.shape(), a), x.bytes(), c.out[0].bytes(),
                            a.keeps_winners ? c.out[1].bytes() : nullptr);
        },
    .backward =
        [](Backward& b, const MaxAttrs& a) {
          const Spec x = b.input_spec(0);
          const Tensor grad_x = Tensor::empty(x);
          kernels::max_pool_backward(x.dtype, shape_of(x.shape, a), b.output(1).bytes(), b.grad().bytes(),
                                     grad_x.bytes());
          b.give(0, grad_x);
        },
    .cost = cost_of_max,
    .onnx = lower_max,
    .composed = no("primitive"),
    .specs = true};

// ---- avg_pool2d -----------------------------------------------------------------------------------------------------

struct AverageAttrs {
  Size2D window;
  WindowOptions options;
  bool count_padding = false;
};
Attributes describe(const AverageAttrs& a) {
  return {{"window", attribute_of(a.window)},
          {"stride", attribute_of(a.options.stride)},
          {"padding", attribute_of(a.options.padding)},
          {"ceil_mode", a.options.ceil_mode},
          {"count_padding", a.count_padding}};
}

kernels::PoolShape shape_of(const Shape& x, const AverageAttrs& a) {
  return pool_shape("avg_pool2d", x, a.window, a.options);
}

// A sum and a quotient.
Cost cost_of_average(const Inputs& in, const Specs& out, const kernels::PoolShape& s) {
  Cost cost = elementwise_cost(in, out, 0);
  cost.flops = cells_seen(s);
  return cost;
}

// Padding that counts becomes a Pad node, and what ceil mode adds stays padding that does not.
onnx::Values lower_average(onnx::Graph& g, const onnx::Values& in, const AverageAttrs& a) {
  const kernels::PoolShape s = shape_of(in[0].spec.shape, a);
  return between_transposes(g, in[0], pooled(s), [&](const onnx::Value& x, const Spec& y) {
    return lower_wide(g, x, [&](onnx::Value wide) {
      kernels::PoolShape rest = s;
      if (a.count_padding) wide = padded(g, wide, rest.height, rest.width, 0);
      return g.node("AveragePool", {wide}, {wide.spec.dtype, y.shape}, window_attributes(rest));
    });
  });
}

constexpr Record<AverageAttrs> avg_pool2d_record{
    .name = "avg_pool2d",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const AverageAttrs& a) -> Specs {
      require_floating("avg_pool2d", in[0]);
      return Spec{in[0].dtype(), pooled(shape_of(in[0].shape(), a))};
    },
    .forward =
        [](const Call& c, const AverageAttrs& a) {
          const Tensor& x = c.in[0];
          kernels::average_pool(x.dtype(), shape_of(x.shape(), a), a.count_padding, x.bytes(), c.out[0].bytes());
        },
    .backward =
        [](Backward& b, const AverageAttrs& a) {
          const Spec x = b.input_spec(0);
          const Tensor grad_x = Tensor::empty(x);
          kernels::average_pool_backward(x.dtype, shape_of(x.shape, a), a.count_padding, b.grad().bytes(),
                                         grad_x.bytes());
          b.give(0, grad_x);
        },
    .cost = [](const Inputs& in, const Specs& out,
               const AverageAttrs& a) { return cost_of_average(in, out, shape_of(in[0].shape(), a)); },
    .onnx = lower_average,
    .composed = no("primitive"),
    .specs = true};

// ---- adaptive_avg_pool2d --------------------------------------------------------------------------------------------

struct AdaptiveAttrs {
  Size2D output;
};
Attributes describe(const AdaptiveAttrs& a) { return {{"output", attribute_of(a.output)}}; }

kernels::PoolShape shape_of(const Shape& x, const AdaptiveAttrs& a) {
  return {x[0], x[3], {.input = x[1], .output = a.output.height}, {.input = x[2], .output = a.output.width}};
}

Specs infer_adaptive(const Inputs& in, const AdaptiveAttrs& a) {
  const Shape& x = in[0].shape();
  require_floating("adaptive_avg_pool2d", in[0]);
  if (x.rank() != 4 || x[1] == 0 || x[2] == 0)
    throw ShapeError(
        fmt::format("[adaptive_avg_pool2d] x has shape {}; it must be a 4-D tensor, (batch, height, width, "
                    "channels), with images of at least one cell",
                    to_string(x)));
  if (a.output.height <= 0 || a.output.width <= 0)
    throw ShapeError(fmt::format("[adaptive_avg_pool2d] the output is ({}, {}); both sizes must be positive",
                                 a.output.height, a.output.width));
  return Spec{in[0].dtype(), pooled(shape_of(x, a))};
}

void adaptive_forward(const Call& c, const AdaptiveAttrs& a) {
  const Tensor &x = c.in[0], &y = c.out[0];
  const kernels::PoolShape s = shape_of(x.shape(), a);
  if (a.output != Size2D(1)) return kernels::average_pool(x.dtype(), s, false, x.bytes(), y.bytes());
  // One long sum, in float64.
  const Shape images{s.batch, s.height.input * s.width.input, s.channels};
  kernels::reduce(kernels::ReduceKind::mean, kernels::reduce_layout(images, kernels::axis_bit(1)), x.dtype(), x.bytes(),
                  y.dtype(), y.bytes());
}

// [O, L], or with `transposed` [L, O]: the share of each cell in each output.
Tensor shares(const kernels::PoolAxis& axis, DType dtype, bool transposed) {
  std::vector<double> values(static_cast<std::size_t>(axis.input * axis.output));
  for (std::int64_t o = 0; o < axis.output; ++o) {
    const kernels::Cells cells = axis.cells(o);
    for (std::int64_t l = cells.first; l < cells.first + cells.count; ++l)
      values[static_cast<std::size_t>(transposed ? l * axis.output + o : o * axis.input + l)] =
          1 / static_cast<double>(cells.count);
  }
  const Shape shape = transposed ? Shape{axis.input, axis.output} : Shape{axis.output, axis.input};
  return cast(Tensor::from<double>(std::span<const double>(values), shape), dtype);
}

// Equal windows are an AveragePool; others have no node, and are a product with the shares on either side.
onnx::Values lower_adaptive(onnx::Graph& g, const onnx::Values& in, const AdaptiveAttrs& a) {
  const kernels::PoolShape s = shape_of(in[0].spec.shape, a);
  return between_transposes(g, in[0], pooled(s), [&](const onnx::Value& x, const Spec& y) {
    return lower_wide(g, x, [&](const onnx::Value& wide) {
      const DType dtype = wide.spec.dtype;
      const Spec result{dtype, y.shape};
      if (a.output == Size2D(1)) return g.node("GlobalAveragePool", {wide}, result);
      if (s.tiled()) {
        const std::vector<std::int64_t> window{s.height.input / s.height.output, s.width.input / s.width.output};
        return g.node("AveragePool", {wide}, result, {{"kernel_shape", window}, {"strides", window}});
      }
      const Shape& from = x.spec.shape;
      const onnx::Value rows = g.node("MatMul", {g.constant(shares(s.height, dtype, false)), wide},
                                      {dtype, {from[0], from[1], s.height.output, from[3]}});
      return g.node("MatMul", {rows, g.constant(shares(s.width, dtype, true))}, result);
    });
  });
}

constexpr Record<AdaptiveAttrs> adaptive_avg_pool2d_record{
    .name = "adaptive_avg_pool2d",
    .policy = CastPolicy::follow,
    .infer = infer_adaptive,
    .forward = adaptive_forward,
    .backward =
        [](Backward& b, const AdaptiveAttrs& a) {
          const Spec x = b.input_spec(0);
          const Tensor grad_x = Tensor::empty(x);
          kernels::average_pool_backward(x.dtype, shape_of(x.shape, a), false, b.grad().bytes(), grad_x.bytes());
          b.give(0, grad_x);
        },
    .cost = [](const Inputs& in, const Specs& out,
               const AdaptiveAttrs& a) { return cost_of_average(in, out, shape_of(in[0].shape(), a)); },
    .onnx = lower_adaptive,
    .composed = no("primitive"),
    .specs = true};

}  // namespace

extern const Op *const max_pool2d_op, *const avg_pool2d_op, *const adaptive_avg_pool2d_op;
constinit const Op* const max_pool2d_op = &op_of<max_pool2d_record>;
constinit const Op* const avg_pool2d_op = &op_of<avg_pool2d_record>;
constinit const Op* const adaptive_avg_pool2d_op = &op_of<adaptive_avg_pool2d_record>;

Tensor max_pool2d(const Tensor& x, Size2D window, const MaxPoolOptions& options) {
  const Tensor floating = as_floating(x);
  const bool wants_gradient = floating.requires_grad() && context().grad;
  const MaxAttrs attrs{
      window, {options.stride.value_or(window), options.padding, options.dilation, options.ceil_mode}, wants_gradient};
  if (!wants_gradient) return apply<max_pool2d_record>(attrs, floating);
  const std::array<const Tensor*, 1> in{&floating};
  std::array<Tensor, 2> out;
  apply(op_of<max_pool2d_record>, &attrs, in, out);
  return std::move(out[0]);
}

Tensor avg_pool2d(const Tensor& x, Size2D window, const AvgPoolOptions& options) {
  return apply<avg_pool2d_record>(
      {window, {options.stride.value_or(window), options.padding, 1, options.ceil_mode}, options.count_padding},
      as_floating(x));
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2D output) {
  return apply<adaptive_avg_pool2d_record>({output}, as_floating(x));
}

Tensor global_avg_pool2d(const Tensor& x) {
  const Tensor y = adaptive_avg_pool2d(x, 1);
  return reshape(y, {y.shape()[0], y.shape()[3]});
}

}  // namespace everyo::inline v1
