#include <fmt/format.h>

#include "ops/norm.h"

// Group norm of x [N, .., C], weight [C], bias [C] -> y [N, .., C]: each sample's C channels in G groups of neighbours,
// S positions stand for the axes between. The backward takes the moments of x again, so that nothing but x and the
// parameters is kept; with ReLU it makes y again, too.
namespace everyo::inline v1 {
namespace {

struct GroupNormAttrs {
  double eps;
  std::int64_t groups;
};
Attributes describe(const GroupNormAttrs& a) { return {{"eps", a.eps}, {"groups", a.groups}}; }

kernels::ChannelNorm norm_of(const Spec& x, const GroupNormAttrs& a, bool relu) {
  const std::int64_t n = x.shape[0], c = x.shape[-1];
  std::int64_t positions = 1;
  for (std::int64_t d = 1; d + 1 < x.shape.rank(); ++d) positions *= x.shape[d];
  return {.dtype = x.dtype, .layout = {n, positions, c, a.groups}, .parameters = {}, .eps = a.eps, .relu = relu};
}

Specs infer(const Inputs& in, const GroupNormAttrs& a) {
  const Tensor& x = in[0];
  if (x.rank() < 2)
    throw ShapeError(fmt::format("[group_norm] x is {}; it must have a batch and channels, (batch, .., channels)",
                                 to_string(x.shape())));
  const std::int64_t c = x.shape()[-1];
  if (a.groups <= 0 || c % a.groups != 0 || c == 0)
    throw ShapeError(
        fmt::format("[group_norm] {} groups of the {} channels of x {}; groups must be positive and divide "
                    "the last axis",
                    a.groups, c, to_string(x.shape())));
  for (std::size_t i = 1; i < in.size(); ++i)
    require_parameter("group_norm", i == 1 ? "weight" : "bias", in[i], Shape{c}, x, "last axis");
  return x.spec();
}

// [2, N, G]
Tensor moments_of(const kernels::ChannelNorm& norm, const Tensor& x) {
  const Tensor moments = Tensor::empty({2, norm.layout.samples, norm.layout.groups}, float64);
  kernels::norm_moments(norm.dtype, norm.layout, x.bytes(), moments.data<double>().data());
  return moments;
}

template <bool relu>
void forward(const Call& call, const GroupNormAttrs& a) {
  const Tensor& x = call.in[0];
  kernels::ChannelNorm norm = norm_of(x.spec(), a, relu);
  norm.parameters = {parameter_of(call.in, 1), parameter_of(call.in, 2)};
  kernels::channel_norm(norm, moments_of(norm, x).data<double>().data(), x.bytes(), call.out[0].bytes());
}

template <bool relu>
void backward(Backward& b, const GroupNormAttrs& a) {
  const bool reads_x = relu || b.needs(0) || (b.inputs() > 1 && b.needs(1));
  const Tensor x = reads_x ? b.input(0) : Tensor();
  kernels::ChannelNorm norm = norm_of(b.input_spec(0), a, relu);
  if (relu || b.needs(0)) norm.parameters.weight = parameter_of(b, 1);
  if (relu) norm.parameters.bias = parameter_of(b, 2);
  const Tensor moments = reads_x ? moments_of(norm, x) : Tensor();
  ParameterGradient weight(b, 1), bias(b, 2);
  const bool owned = b.owns_grad();
  const Tensor grad = b.take_grad();
  const Tensor grad_x = !b.needs(0) ? Tensor() : owned ? grad : Tensor::empty(grad.spec());
  kernels::channel_norm_backward(norm, reads_x ? moments.data<double>().data() : nullptr, false,
                                 reads_x ? x.bytes() : nullptr, grad.bytes(),
                                 {grad_x.defined() ? grad_x.bytes() : nullptr, weight.memory(), bias.memory()});
  weight.give();
  bias.give();
  if (b.needs(0)) b.give(0, grad_x);
}

// In the dtype that the fused op computes in.
Tensor compose(const Inputs& in, const GroupNormAttrs& a) {
  const kernels::NormLayout s = norm_of(in[0].spec(), a, false).layout;
  const Tensor x = reshape(cast(in[0], wide_of(in[0].dtype())), {s.samples, s.rows, s.groups, s.channels / s.groups});
  const Tensor centered = x - mean(x, {1, 3}, true);
  const Tensor normalised = centered / sqrt(mean(centered * centered, {1, 3}, true) + a.eps);
  return affine(in, 1, reshape(normalised, in[0].shape().sizes()));
}
Tensor compose_with_relu(const Inputs& in, const GroupNormAttrs& a) {
  return relu(group_norm(in[0], a.groups, tensor_of(in, 1), tensor_of(in, 2), {.eps = a.eps}));
}

template <bool relu>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const GroupNormAttrs& a) {
  const Spec x = in[0].spec;
  const DType wide = wide_of(x.dtype);
  const kernels::NormLayout s = norm_of(x, a, false).layout;
  const std::int64_t size = s.channels / s.groups;
  const Spec grouped{wide, {s.samples, s.rows, s.groups, size}}, moment{wide, {s.samples, 1, s.groups, 1}};
  const auto mean_of = [&](const onnx::Value& v) {
    return lower_reduction(g, "ReduceMean", v, {1, 3}, true, moment.shape);
  };
  const onnx::Value groups =
      g.node("Reshape", {lower_cast(g, in[0], wide), g.integers({s.samples, s.rows, s.groups, size})}, grouped);
  const onnx::Value centered = g.node("Sub", {groups, mean_of(groups)}, grouped);
  const onnx::Value variance = mean_of(g.node("Mul", {centered, centered}, grouped));
  const onnx::Value eps = g.constant(Tensor::scalar(a.eps, wide));
  const onnx::Value deviation = g.node("Sqrt", {g.node("Add", {variance, eps}, moment)}, moment);
  const std::vector<std::int64_t> sizes(x.shape.sizes().begin(), x.shape.sizes().end());
  const Spec y{wide, x.shape};
  onnx::Value out = g.node("Reshape", {g.node("Div", {centered, deviation}, grouped), g.integers(sizes)}, y);
  if (in.size() > 1) out = g.node("Mul", {out, lower_cast(g, in[1], wide)}, y);
  if (in.size() > 2) out = g.node("Add", {out, lower_cast(g, in[2], wide)}, y);
  out = lower_cast(g, out, x.dtype);
  return {relu ? g.node("Relu", {out}, x) : out};
}

template <bool relu>
constexpr Record<GroupNormAttrs> record_of(const char* name) {
  constexpr InputMask all = for_every_grad;
  return {.name = name,
          .policy = CastPolicy::follow,
          .saves = {.inputs = {relu ? all : for_grad_of(0, 1), relu ? all : for_grad_of(0), relu ? all : 0}},
          .infer = infer,
          .forward = forward<relu>,
          .backward = backward<relu>,
          // As batch_norm: a difference, a square, two sums; a difference, a product, a sum.
          .cost = [](const Inputs& in, const Specs& out,
                     const GroupNormAttrs&) { return norm_cost(in, out, relu ? 8 : 7); },
          .onnx = lower<relu>,
          .composed = relu ? compose_with_relu : compose,
          .specs = true};
}
constexpr Record<GroupNormAttrs> group_norm_record = record_of<false>("group_norm");
constexpr Record<GroupNormAttrs> group_norm_activation_record = record_of<true>("group_norm_activation");

}  // namespace

extern const Op *const group_norm_op, *const group_norm_activation_op;
constinit const Op* const group_norm_op = &op_of<group_norm_record>;
constinit const Op* const group_norm_activation_op = &op_of<group_norm_activation_record>;

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  const NormOptions& options) {
  require_norm("group_norm", x, options.eps);
  const GroupNormAttrs attrs{options.eps, groups};
  const bool relu = options.activation == Activation::relu;
  const NormInputs in({&x}, weight, bias, x.rank() == 0 ? Shape{} : Shape{x.shape()[-1]});
  Tensor y;
  apply(relu ? op_of<group_norm_activation_record> : op_of<group_norm_record>, &attrs, in.list(), {&y, 1});
  return relu ? y : activate(y, options.activation);
}

}  // namespace everyo::inline v1
