#include <fmt/format.h>

#include <algorithm>

#include "everyo/ops.h"
#include "kernels/convolution.h"
#include "kernels/unary.h"
#include "ops/elementwise.h"
#include "ops/product.h"
#include "ops/window.h"

// conv2d: a convolution with its bias, and conv2d_relu: the same with ReLU, each as one op.
//   x [N, H, W, C] weight [KH, KW, C / G, O] bias [O] -> y [N, OH, OW, O]
//   N images, C channels, O outputs, G groups
// Halves are summed in float32 with the bias and rounded once.
namespace everyo::inline v1 {
namespace {

using kernels::ConvolutionProblem;
using kernels::Unary;

struct Conv2dAttrs {
  Size2D stride = 1;
  Padding padding{};
  Size2D dilation = 1;
  std::int64_t groups = 1;
};
Attributes describe(const Conv2dAttrs& a) {
  return {{"stride", attribute_of(a.stride)},
          {"padding", attribute_of(a.padding)},
          {"dilation", attribute_of(a.dilation)},
          {"groups", a.groups}};
}

[[noreturn]] void refuse(const Shape& x, const Shape& weight, std::string_view what) {
  throw ShapeError(fmt::format("[conv2d] x {}, weight {}: {}", to_string(x), to_string(weight), what));
}

WindowAxes axes_of(const Shape& x, const Shape& weight, const Conv2dAttrs& a) {
  return window_axes("conv2d", x[1], x[2], {weight[0], weight[1]},
                     {.stride = a.stride, .padding = a.padding, .dilation = a.dilation});
}

void require_groups(const Shape& x, const Shape& weight, std::int64_t groups) {
  if (groups <= 0) refuse(x, weight, fmt::format("groups is {}; it must be positive", groups));
  if (x[3] % groups != 0 || weight[3] % groups != 0)
    refuse(x, weight,
           fmt::format("{} groups do not divide {} channel(s) into {} output(s); both must be multiples of groups",
                       groups, x[3], weight[3]));
  if (x[3] / groups == weight[2]) return;
  refuse(
      x, weight,
      fmt::format("the image has {} channel(s), the kernel expects {}{}; give the image that many", x[3],
                  weight[2] * groups, groups == 1 ? "" : fmt::format(" ({} in each of {} groups)", weight[2], groups)));
}

void require_fit(const Shape& x, const Shape& weight, const WindowAxes& axes, const Conv2dAttrs& attrs) {
  if (attrs.padding.kind == Padding::Kind::same || (axes.height.output > 0 && axes.width.output > 0)) return;
  const auto padded = [](const WindowAxis& axis) { return axis.input + axis.before + axis.after; };
  refuse(
      x, weight,
      fmt::format("the kernel, {} by {} cells with its dilation, does not fit the padded image of {} by {}; pad more "
                  "or use a smaller kernel",
                  axes.height.extent(), axes.width.extent(), padded(axes.height), padded(axes.width)));
}

Specs infer(const Inputs& in, const Conv2dAttrs& attrs) {
  const Shape &x = in[0].shape(), &weight = in[1].shape();
  if (x.rank() != 4) refuse(x, weight, "x must be a 4-D tensor, (N, H, W, C)");
  if (weight.rank() != 4) refuse(x, weight, "the weight must be a 4-D kernel, (KH, KW, C / groups, O)");
  require_groups(x, weight, attrs.groups);
  if (in.size() == 3 && in[2].shape() != Shape{weight[3]})
    refuse(x, weight,
           fmt::format("the bias must have shape ({},), the kernel's outputs, not {}", weight[3],
                       to_string(in[2].shape())));
  const DType dtype = in[0].dtype();
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i].dtype() != dtype || !is_floating(dtype))
      throw DTypeError(fmt::format("[conv2d] x is {}, {} is {}; all must have one floating dtype; cast() them first",
                                   name_of(dtype), i == 2 ? "bias" : "weight", name_of(in[i].dtype())));
  const WindowAxes axes = axes_of(x, weight, attrs);
  require_fit(x, weight, axes, attrs);
  return Spec{dtype, {x[0], axes.height.output, axes.width.output, weight[3]}};
}

ConvolutionProblem problem_of(const Spec& x, const Shape& weight, const Conv2dAttrs& attrs) {
  const auto axis = [](const WindowAxis& a) -> kernels::ConvolutionAxis {
    // A stride beyond the padded image moves no window; oneDNN counts in 32 bits.
    const std::int64_t stride = std::min(a.stride, std::max<std::int64_t>(a.input + a.before + a.after, 1));
    return {a.input, a.window, stride, a.dilation, a.before, a.after, a.output};
  };
  const WindowAxes axes = axes_of(x.shape, weight, attrs);
  return {x.dtype, x.shape[0], x.shape[3], weight[3], attrs.groups, axis(axes.height), axis(axes.width)};
}

template <bool relu>
void forward(const Call& call, const Conv2dAttrs& attrs) {
  const Tensor &x = call.in[0], &weight = call.in[1];
  kernels::convolution(problem_of(x.spec(), weight.shape(), attrs), x.bytes(), weight.bytes(),
                       call.in.size() == 3 ? call.in[2].bytes() : nullptr, relu, call.out[0].bytes());
}

// dz [N, OH, OW, O]: the gradient before the activation.
void give_gradients(Backward& b, const Tensor& dz, const Conv2dAttrs& attrs) {
  const Spec x = b.input_spec(0), weight = b.input_spec(1);
  const ConvolutionProblem problem = problem_of(x, weight.shape, attrs);
  if (b.needs(0)) {
    const Target target = b.target(0);
    const bool straight = target && !target.add;
    Tensor gradient = straight ? target.memory : Tensor::empty(x);
    kernels::convolution_data_gradient(problem, b.input(1).bytes(), dz.bytes(), gradient.bytes());
    if (straight)
      b.wrote(0);
    else
      b.give(0, std::move(gradient));
  }
  if (b.needs(1)) {
    const Target target = b.target(1);
    Tensor gradient = target ? target.memory : Tensor::empty(weight);
    kernels::convolution_weight_gradient(problem, b.input(0).bytes(), dz.bytes(), gradient.bytes(),
                                         target && target.add);
    if (target)
      b.wrote(1);
    else
      b.give(1, std::move(gradient));
  }
  if (b.inputs() == 3 && b.needs(2)) give_column_sum(b, 2, dz);
}

void backward(Backward& b, const Conv2dAttrs& attrs) { give_gradients(b, b.grad(), attrs); }

void backward_of_relu(Backward& b, const Conv2dAttrs& attrs) {
  const Tensor& y = b.output();
  const bool in_place = b.owns_grad();
  const Tensor grad = b.take_grad();
  const Tensor dz = in_place ? grad : Tensor::empty(y.spec());
  kernels::unary_backward(Unary::relu, y.dtype(), y.bytes(), grad.bytes(), dz.bytes(), y.size());
  give_gradients(b, dz, attrs);
}

template <bool relu>
Cost cost(const Inputs& in, const Specs& out, const Conv2dAttrs&) {
  const Shape& weight = in[1].shape();
  auto bytes = static_cast<double>(out[0].bytes());
  for (std::size_t i = 0; i < in.size(); ++i) bytes += static_cast<double>(in[i].spec().bytes());
  const auto products = static_cast<double>(weight[0] * weight[1] * weight[2]);
  const int steps = (in.size() == 3 ? 1 : 0) + (relu ? 1 : 0);
  return {.flops = static_cast<double>(out[0].shape.elements()) * (2 * products + steps), .bytes = bytes};
}

// ONNX has channels first, so a Conv stands between Transposes; "same" padding as numbers of cells.
template <bool relu>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const Conv2dAttrs& attrs) {
  const Shape &x = in[0].spec.shape, &w = in[1].spec.shape;
  const DType dtype = in[0].spec.dtype;
  const WindowAxes axes = axes_of(x, w, attrs);
  using Numbers = std::vector<std::int64_t>;
  const auto transposed = [&](const onnx::Value& value, const Shape& shape, const Numbers& perm) {
    return g.node("Transpose", {value}, {dtype, shape}, {{"perm", perm}});
  };
  onnx::Values operands{transposed(in[0], {x[0], x[3], x[1], x[2]}, {0, 3, 1, 2}),
                        transposed(in[1], {w[3], w[2], w[0], w[1]}, {3, 2, 0, 1})};
  if (in.size() == 3) operands.push_back(in[2]);
  const Spec result{dtype, {x[0], w[3], axes.height.output, axes.width.output}};
  onnx::Value y = g.node("Conv", operands, result,
                         {{"kernel_shape", Numbers{w[0], w[1]}},
                          {"strides", Numbers{attrs.stride.height, attrs.stride.width}},
                          {"dilations", Numbers{attrs.dilation.height, attrs.dilation.width}},
                          {"pads", Numbers{axes.height.before, axes.width.before, axes.height.after, axes.width.after}},
                          {"group", attrs.groups}});
  if (relu) y = g.node("Relu", {y}, result);
  return {transposed(y, {x[0], axes.height.output, axes.width.output, w[3]}, {0, 2, 3, 1})};
}

constexpr InputMask kept_x = for_grad_of(1), kept_weight = for_grad_of(0);

constexpr Record<Conv2dAttrs> conv2d_record{.name = "conv2d",
                                            .policy = CastPolicy::low,
                                            .saves = {.inputs = {kept_x, kept_weight}},
                                            .infer = infer,
                                            .forward = forward<false>,
                                            .backward = backward,
                                            .cost = cost<false>,
                                            .onnx = lower<false>,
                                            .composed = no("primitive: the bias joins the sum before it is rounded"),
                                            .specs = true};

Tensor composed(const Inputs& in, const Conv2dAttrs& attrs) {
  return relu(in.size() == 3 ? apply<conv2d_record>(attrs, in[0], in[1], in[2])
                             : apply<conv2d_record>(attrs, in[0], in[1]));
}

constexpr Record<Conv2dAttrs> conv2d_relu_record{
    .name = "conv2d_relu",
    .policy = CastPolicy::low,
    .saves = {.inputs = {kept_x, kept_weight}, .outputs = {for_every_grad}},
    .infer = infer,
    .forward = forward<true>,
    .backward = backward_of_relu,
    .cost = cost<true>,
    .onnx = lower<true>,
    .composed = composed,
    .specs = true};

}  // namespace

extern const Op *const conv2d_op, *const conv2d_relu_op;
constinit const Op* const conv2d_op = &op_of<conv2d_record>;
constinit const Op* const conv2d_relu_op = &op_of<conv2d_relu_record>;

namespace {
// Operands of any dtypes.
Tensor conv2d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const Conv2dAttrs attrs{options.stride, options.padding, options.dilation, options.groups};
  const bool defined = x.defined() && weight.defined();
  if (defined && x.dtype() != weight.dtype()) [[unlikely]] {
    const DType dtype = promote(x.dtype(), weight.dtype());
    return conv2d_of(cast(x, dtype), cast(weight, dtype), bias, options);
  }
  if (defined && bias.defined() && bias.dtype() != x.dtype()) [[unlikely]]  // each step promotes
    return activate(add(apply<conv2d_record>(attrs, x, weight), bias), options.activation);
  if (options.activation == Activation::relu)
    return bias.defined() ? apply<conv2d_relu_record>(attrs, x, weight, bias)
                          : apply<conv2d_relu_record>(attrs, x, weight);
  return activate(
      bias.defined() ? apply<conv2d_record>(attrs, x, weight, bias) : apply<conv2d_record>(attrs, x, weight),
      options.activation);
}
}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  if (context().autocast) [[unlikely]]
    return conv2d_of(as_low(x, weight), as_low(weight, x), as_low(bias, weight), options);
  return conv2d_of(x, weight, bias, options);
}

}  // namespace everyo::inline v1
