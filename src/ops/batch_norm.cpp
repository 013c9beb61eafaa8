#include <fmt/format.h>

#include "ops/elementwise.h"
#include "ops/norm.h"

// Batch norm of x [.., C]: N rows stand for all the leading dimensions.
//   batch_norm:      x, weight [C], bias [C]             -> y [.., C], mean [C], variance [C], moments [2, C]
//   batch_norm_eval: x, mean, variance, weight, bias [C] -> y [.., C]
// weight and bias, or bias alone, may be missing. Each has a form with ReLU, which the backward makes again from x, so
// that y need not be kept.
namespace everyo::inline v1 {
namespace {

struct BatchNormAttrs {
  double eps;
};
Attributes describe(const BatchNormAttrs& a) { return {{"eps", a.eps}}; }

kernels::ChannelNorm norm_of(const Spec& x, const BatchNormAttrs& a, bool relu) {
  const std::int64_t c = x.shape[-1];
  return {.dtype = x.dtype,
          .layout = {1, c == 0 ? 0 : x.shape.elements() / c, c, c},
          .parameters = {},
          .eps = a.eps,
          .relu = relu};
}

Shape channels_of(const Tensor& x) { return x.rank() == 0 ? Shape{} : Shape{x.shape()[-1]}; }

// The inputs from `first` on.
void check_parameters(std::string_view op, const Inputs& in, std::size_t first,
                      std::initializer_list<std::string_view> names) {
  const Tensor& x = in[0];
  if (x.rank() < 2)
    throw ShapeError(
        fmt::format("[{}] x is {}; it must have a batch and channels, (.., channels)", op, to_string(x.shape())));
  for (std::size_t i = first; i < in.size(); ++i)
    require_parameter(op, names.begin()[i - first], in[i], channels_of(x), x, "last axis");
}

// Gradients of the input and of the parameters from input `first` on.
void give_gradients(Backward& b, kernels::ChannelNorm norm, const double* moments, bool fixed, std::size_t first,
                    const Tensor& x) {
  ParameterGradient weight(b, first), bias(b, first + 1);
  const bool owned = b.owns_grad();
  const Tensor grad = b.take_grad();
  Tensor grad_x;
  if (b.needs(0)) {
    grad_x = owned ? grad : Tensor::empty(grad.spec());
    norm.parameters.weight = parameter_of(b, first);
  }
  kernels::channel_norm_backward(norm, moments, fixed, x.defined() ? x.bytes() : nullptr, grad.bytes(),
                                 {grad_x.defined() ? grad_x.bytes() : nullptr, weight.memory(), bias.memory()});
  weight.give();
  bias.give();
  if (b.needs(0)) b.give(0, std::move(grad_x));
}

// ---- training: moments of the batch --------------------------------------------------------------------------------

Specs infer(const Inputs& in, const BatchNormAttrs&) {
  check_parameters("batch_norm", in, 1, {"weight", "bias"});
  const Spec x = in[0].spec();
  const std::int64_t c = x.shape[-1];
  if (x.shape.elements() == c && c > 0)
    throw ShapeError(
        fmt::format("[batch_norm] x {} has one value a channel, which has no variance; give a larger batch, or use the "
                    "running statistics (eval())",
                    to_string(x.shape)));
  const Spec statistic{wide_of(x.dtype), {c}};
  return {x, statistic, statistic, Spec{float64, {2, c}}};
}

template <bool relu>
void forward(const Call& call, const BatchNormAttrs& a) {
  const Tensor& x = call.in[0];
  kernels::ChannelNorm norm = norm_of(x.spec(), a, relu);
  norm.parameters = {parameter_of(call.in, 1), parameter_of(call.in, 2)};
  auto* const moments = reinterpret_cast<double*>(call.out[3].bytes());
  kernels::norm_moments(norm.dtype, norm.layout, x.bytes(), moments);
  kernels::store_moments(moments, norm.layout.channels, norm.layout.rows, call.out[1].dtype(), call.out[1].bytes(),
                         call.out[2].bytes());
  kernels::channel_norm(norm, moments, x.bytes(), call.out[0].bytes());
}

template <bool relu>
void backward(Backward& b, const BatchNormAttrs& a) {
  const bool reads_x = relu || b.needs(0) || (b.inputs() > 1 && b.needs(1));
  const Tensor x = reads_x ? b.input(0) : Tensor();
  kernels::ChannelNorm norm = norm_of(b.input_spec(0), a, relu);
  if (relu) norm.parameters = {parameter_of(b, 1), parameter_of(b, 2)};
  give_gradients(b, norm, reads_x ? reinterpret_cast<const double*>(b.output(3).bytes()) : nullptr, false, 1, x);
}

// In the dtype that the fused op computes in.
Tensor compose(const Inputs& in, const BatchNormAttrs& a) {
  const Tensor x = cast(in[0], wide_of(in[0].dtype()));
  Axes rows;
  for (std::int64_t d = 0; d + 1 < x.rank(); ++d) rows.push_back(d);
  const Tensor centered = x - mean(x, rows, true);
  return affine(in, 1, centered / sqrt(mean(centered * centered, rows, true) + a.eps));
}

Tensor compose_with_relu(const Inputs& in, const BatchNormAttrs& a) {
  return relu(batch_norm(in[0], tensor_of(in, 1), tensor_of(in, 2), {.eps = a.eps}).y);
}

template <bool relu>
constexpr Record<BatchNormAttrs> record_of(const char* name) {
  const InputMask kept_for = relu ? for_every_grad : for_grad_of(0, 1);
  return {.name = name,
          .policy = CastPolicy::follow,
          .saves = {.inputs = {kept_for, relu ? for_every_grad : for_grad_of(0), relu ? for_every_grad : 0},
                    .outputs = {0, 0, 0, kept_for}},
          .infer = infer,
          .forward = forward<relu>,
          .backward = backward<relu>,
          // Moments take a difference, a square and two sums; y a difference, a product and a sum.
          .cost = [](const Inputs& in, const Specs& out,
                     const BatchNormAttrs&) { return norm_cost(in, out, relu ? 8 : 7); },
          .onnx = no("it normalises by the batch's own statistics; a file needs running ones: track_running_stats, and "
                     "eval() on the model"),
          .composed = relu ? compose_with_relu : compose,
          .specs = true};
}
constexpr Record<BatchNormAttrs> batch_norm_record = record_of<false>("batch_norm");
constexpr Record<BatchNormAttrs> batch_norm_activation_record = record_of<true>("batch_norm_activation");

// ---- eval: moments given --------------------------------------------------------------------------------------------

Specs eval_infer(const Inputs& in, const BatchNormAttrs&) {
  check_parameters("batch_norm", in, 1, {"mean", "variance", "weight", "bias"});
  return in[0].spec();
}

// [2, C]
Tensor moments_of(const Tensor& mean, const Tensor& variance) {
  const Tensor moments = Tensor::empty({2, mean.size()}, float64);
  kernels::load_moments({mean.dtype(), mean.bytes()}, {variance.dtype(), variance.bytes()}, mean.size(),
                        moments.data<double>().data());
  return moments;
}

template <bool relu>
void eval_forward(const Call& call, const BatchNormAttrs& a) {
  const Tensor& x = call.in[0];
  kernels::ChannelNorm norm = norm_of(x.spec(), a, relu);
  norm.parameters = {parameter_of(call.in, 3), parameter_of(call.in, 4)};
  const Tensor moments = moments_of(call.in[1], call.in[2]);
  kernels::channel_norm(norm, moments.data<double>().data(), x.bytes(), call.out[0].bytes());
}

template <bool relu>
void eval_backward(Backward& b, const BatchNormAttrs& a) {
  const bool of_weight = b.inputs() > 3 && b.needs(3);
  const Tensor x = relu || of_weight ? b.input(0) : Tensor();
  const bool reads_moments = relu || of_weight || b.needs(0);
  const Tensor moments = reads_moments ? moments_of(b.input(1), b.input(2)) : Tensor();
  kernels::ChannelNorm norm = norm_of(b.input_spec(0), a, relu);
  if (relu) norm.parameters = {parameter_of(b, 3), parameter_of(b, 4)};
  give_gradients(b, norm, reads_moments ? moments.data<double>().data() : nullptr, true, 3, x);
}

Tensor eval_compose(const Inputs& in, const BatchNormAttrs& a) {
  const DType wide = wide_of(in[0].dtype());
  return affine(in, 3, (cast(in[0], wide) - in[1]) / sqrt(cast(in[2], wide) + a.eps));
}
Tensor eval_compose_with_relu(const Inputs& in, const BatchNormAttrs& a) {
  return relu(batch_norm(in[0], in[1], in[2], tensor_of(in, 3), tensor_of(in, 4), {.eps = a.eps}));
}

// One scale and one shift a channel.
template <bool relu>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const BatchNormAttrs& a) {
  const Spec x = in[0].spec;
  const DType wide = wide_of(x.dtype);
  const Spec channels{wide, in[1].spec.shape}, y{wide, x.shape};
  const auto widened = [&](std::size_t i) { return lower_cast(g, in[i], wide); };
  const auto number = [&](double value) { return g.constant(Tensor::scalar(value, wide)); };
  const onnx::Value deviation = g.node("Sqrt", {g.node("Add", {widened(2), number(a.eps)}, channels)}, channels);
  const onnx::Value scale = g.node("Div", {in.size() > 3 ? widened(3) : number(1), deviation}, channels);
  const onnx::Value moved = g.node("Mul", {widened(1), scale}, channels);
  const onnx::Value shift = g.node("Sub", {in.size() > 4 ? widened(4) : number(0), moved}, channels);
  onnx::Value out = g.node("Add", {g.node("Mul", {widened(0), scale}, y), shift}, y);
  out = lower_cast(g, out, x.dtype);
  return {relu ? g.node("Relu", {out}, x) : out};
}

template <bool relu>
constexpr Record<BatchNormAttrs> eval_record_of(const char* name) {
  const InputMask x = for_grad_of(0), weight = for_grad_of(3), all = for_every_grad;
  return {.name = name,
          .policy = CastPolicy::follow,
          .saves = {.inputs = {relu ? all : weight, relu ? all : x | weight, relu ? all : x | weight, relu ? all : x},
                    .rest_inputs = relu ? all : 0},
          .infer = eval_infer,
          .forward = eval_forward<relu>,
          .backward = eval_backward<relu>,
          .cost = [](const Inputs& in, const Specs& out,
                     const BatchNormAttrs&) { return norm_cost(in, out, relu ? 4 : 3); },
          .onnx = lower<relu>,
          .composed = relu ? eval_compose_with_relu : eval_compose,
          .specs = true};
}
constexpr Record<BatchNormAttrs> batch_norm_eval_record = eval_record_of<false>("batch_norm_eval");
constexpr Record<BatchNormAttrs> batch_norm_eval_activation_record = eval_record_of<true>("batch_norm_eval_activation");

}  // namespace

extern const Op *const batch_norm_op, *const batch_norm_activation_op;
extern const Op *const batch_norm_eval_op, *const batch_norm_eval_activation_op;
constinit const Op* const batch_norm_op = &op_of<batch_norm_record>;
constinit const Op* const batch_norm_activation_op = &op_of<batch_norm_activation_record>;
constinit const Op* const batch_norm_eval_op = &op_of<batch_norm_eval_record>;
constinit const Op* const batch_norm_eval_activation_op = &op_of<batch_norm_eval_activation_record>;

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const NormOptions& options) {
  require_norm("batch_norm", x, options.eps);
  const BatchNormAttrs attrs{options.eps};
  const bool relu = options.activation == Activation::relu;
  const NormInputs in({&x}, weight, bias, channels_of(x));
  std::array<Tensor, 4> out;
  apply(relu ? op_of<batch_norm_activation_record> : op_of<batch_norm_record>, &attrs, in.list(), out);
  return {relu ? std::move(out[0]) : activate(out[0], options.activation), out[1].detach(), out[2].detach()};
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias,
                  const NormOptions& options) {
  require_norm("batch_norm", x, options.eps);
  const BatchNormAttrs attrs{options.eps};
  const bool relu = options.activation == Activation::relu;
  const Tensor fixed_mean = mean.requires_grad() ? mean.detach() : mean;
  const Tensor fixed_variance = variance.requires_grad() ? variance.detach() : variance;
  const NormInputs in({&x, &fixed_mean, &fixed_variance}, weight, bias, channels_of(x));
  Tensor y;
  apply(relu ? op_of<batch_norm_eval_activation_record> : op_of<batch_norm_eval_record>, &attrs, in.list(), {&y, 1});
  return relu ? y : activate(y, options.activation);
}

}  // namespace everyo::inline v1
