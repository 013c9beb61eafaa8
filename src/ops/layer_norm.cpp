#include <fmt/format.h>

#include "kernels/row_norm.h"
#include "ops/norm.h"

// Layer norm of x [.., D], weight [D], bias [D] -> y [.., D]: D stands for the trailing axes that a row is made of, N
// rows for all before them. The backward takes the moments of x again, which is in the cache by then, so that nothing
// but x and the parameters is kept; with ReLU it makes y again, too.
namespace everyo::inline v1 {
namespace {

struct LayerNormAttrs {
  double eps;
  std::int64_t axes;  // trailing ones
};
Attributes describe(const LayerNormAttrs& a) { return {{"eps", a.eps}, {"axes", a.axes}}; }

Shape row_shape(const Shape& x, const LayerNormAttrs& a) {
  Shape row;
  for (std::int64_t d = x.rank() - a.axes; d < x.rank(); ++d) row.push_back(x[d]);
  return row;
}

kernels::RowNorm norm_of(const Spec& x, const LayerNormAttrs& a, bool relu) {
  const std::int64_t width = row_shape(x.shape, a).elements();
  return {.dtype = x.dtype,
          .rows = x.shape.elements() / width,
          .width = width,
          .parameters = {},
          .eps = a.eps,
          .relu = relu};
}

Specs infer(const Inputs& in, const LayerNormAttrs& a) {
  const Tensor& x = in[0];
  for (std::size_t i = 1; i < in.size(); ++i)
    require_parameter("layer_norm", i == 1 ? "weight" : "bias", in[i], row_shape(x.shape(), a), x, "trailing axes");
  return x.spec();
}

template <bool relu>
void forward(const Call& call, const LayerNormAttrs& a) {
  const Tensor& x = call.in[0];
  kernels::RowNorm norm = norm_of(x.spec(), a, relu);
  norm.parameters = {parameter_of(call.in, 1), parameter_of(call.in, 2)};
  kernels::row_norm(norm, x.bytes(), call.out[0].bytes());
}

template <bool relu>
void backward(Backward& b, const LayerNormAttrs& a) {
  const bool reads_x = relu || b.needs(0) || (b.inputs() > 1 && b.needs(1));
  const std::byte* const x = reads_x ? b.input(0).bytes() : nullptr;
  kernels::RowNorm norm = norm_of(b.input_spec(0), a, relu);
  if (relu || b.needs(0)) norm.parameters.weight = parameter_of(b, 1);
  if (relu) norm.parameters.bias = parameter_of(b, 2);
  ParameterGradient weight(b, 1), bias(b, 2);
  const bool owned = b.owns_grad();
  const Tensor grad = b.take_grad();
  const Tensor grad_x = !b.needs(0) ? Tensor() : owned ? grad : Tensor::empty(grad.spec());
  kernels::row_norm_backward(norm, x, grad.bytes(),
                             {grad_x.defined() ? grad_x.bytes() : nullptr, weight.memory(), bias.memory()});
  weight.give();
  bias.give();
  if (b.needs(0)) b.give(0, grad_x);
}

// In the dtype that the fused op computes in.
Tensor compose(const Inputs& in, const LayerNormAttrs& a) {
  const Tensor x = cast(in[0], wide_of(in[0].dtype()));
  Axes axes;
  for (std::int64_t d = 1; d <= a.axes; ++d) axes.push_back(-d);
  const Tensor centered = x - mean(x, axes, true);
  return affine(in, 1, centered / sqrt(mean(centered * centered, axes, true) + a.eps));
}
Tensor compose_with_relu(const Inputs& in, const LayerNormAttrs& a) {
  return relu(layer_norm(in[0], row_shape(in[0].shape(), a), tensor_of(in, 1), tensor_of(in, 2), {.eps = a.eps}));
}

// x, weight and perhaps bias; opset 17 is the first with LayerNormalization.
onnx::Value lower_by_parts(onnx::Graph& g, const onnx::Values& list, const LayerNormAttrs& a) {
  const Spec y = list[0].spec;
  Spec moment = y;
  std::vector<std::int64_t> axes;
  for (std::int64_t d = y.shape.rank() - a.axes; d < y.shape.rank(); ++d) {
    axes.push_back(d);
    moment.shape.set(d, 1);
  }
  const auto mean_of = [&](const onnx::Value& v) {
    return lower_reduction(g, "ReduceMean", v, axes, true, moment.shape);
  };
  const onnx::Value centered = g.node("Sub", {list[0], mean_of(list[0])}, y);
  const onnx::Value variance = mean_of(g.node("Mul", {centered, centered}, y));
  const onnx::Value eps = g.constant(Tensor::scalar(a.eps, y.dtype));
  const onnx::Value deviation = g.node("Sqrt", {g.node("Add", {variance, eps}, moment)}, moment);
  const onnx::Value scaled = g.node("Mul", {g.node("Div", {centered, deviation}, y), list[1]}, y);
  return list.size() > 2 ? g.node("Add", {scaled, list[2]}, y) : scaled;
}

template <bool relu>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const LayerNormAttrs& a) {
  const Spec x = in[0].spec, y{wide_of(x.dtype), x.shape};
  onnx::Values list{lower_cast(g, in[0], y.dtype)};
  list.push_back(in.size() > 1 ? lower_cast(g, in[1], y.dtype)
                               : g.constant(Tensor::ones(row_shape(x.shape, a), y.dtype)));
  if (in.size() > 2) list.push_back(lower_cast(g, in[2], y.dtype));
  const onnx::Value normalised =
      g.opset < 17 ? lower_by_parts(g, list, a)
                   : g.node("LayerNormalization", list, y, {{"axis", -a.axes}, {"epsilon", static_cast<float>(a.eps)}});
  const onnx::Value out = lower_cast(g, normalised, x.dtype);
  return {relu ? g.node("Relu", {out}, x) : out};
}

template <bool relu>
constexpr Record<LayerNormAttrs> record_of(const char* name) {
  constexpr InputMask all = for_every_grad;
  return {.name = name,
          .policy = CastPolicy::follow,
          .saves = {.inputs = {relu ? all : for_grad_of(0, 1), relu ? all : for_grad_of(0), relu ? all : 0}},
          .infer = infer,
          .forward = forward<relu>,
          .backward = backward<relu>,
          // An estimate of the mean, then as batch_norm: a difference, a square, two sums; a difference, two products,
          // a sum.
          .cost = [](const Inputs& in, const Specs& out,
                     const LayerNormAttrs&) { return norm_cost(in, out, relu ? 10 : 9); },
          .onnx = lower<relu>,
          .composed = relu ? compose_with_relu : compose,
          .specs = true};
}
constexpr Record<LayerNormAttrs> layer_norm_record = record_of<false>("layer_norm");
constexpr Record<LayerNormAttrs> layer_norm_activation_record = record_of<true>("layer_norm_activation");

void check_shape(const Tensor& x, const Shape& normalized_shape) {
  bool positive = normalized_shape.rank() > 0, trailing = normalized_shape.rank() <= x.rank();
  for (const std::int64_t size : normalized_shape.sizes()) positive = positive && size > 0;
  if (!positive)
    throw ShapeError(
        fmt::format("[layer_norm] the normalized shape is {}; it must be a positive normalized_shape, of "
                    "the trailing axes of x",
                    to_string(normalized_shape)));
  for (std::int64_t d = 1; trailing && d <= normalized_shape.rank(); ++d)
    trailing = normalized_shape[-d] == x.shape()[-d];
  if (!trailing)
    throw ShapeError(fmt::format("[layer_norm] x is {}; its trailing axes must be {}, the normalized shape",
                                 to_string(x.shape()), to_string(normalized_shape)));
}

}  // namespace

extern const Op *const layer_norm_op, *const layer_norm_activation_op;
constinit const Op* const layer_norm_op = &op_of<layer_norm_record>;
constinit const Op* const layer_norm_activation_op = &op_of<layer_norm_activation_record>;

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  const NormOptions& options) {
  require_norm("layer_norm", x, options.eps);
  check_shape(x, normalized_shape);
  const LayerNormAttrs attrs{options.eps, normalized_shape.rank()};
  const bool relu = options.activation == Activation::relu;
  const NormInputs in({&x}, weight, bias, normalized_shape);
  Tensor y;
  apply(relu ? op_of<layer_norm_activation_record> : op_of<layer_norm_record>, &attrs, in.list(), {&y, 1});
  return relu ? y : activate(y, options.activation);
}

}  // namespace everyo::inline v1
