#include "verify/op_calls.h"

#include <algorithm>
#include <array>

#include "everyo/ops.h"

namespace everyo::verify_room {
namespace {

Tensor rows(DType dtype) { return Tensor::full({2, 4}, 0.5, dtype); }
Tensor vector(DType dtype) { return Tensor::full({4}, 0.5, dtype); }
Tensor square(DType dtype) { return Tensor::full({4, 4}, 0.5, dtype); }
Tensor image(DType dtype) { return Tensor::full({1, 4, 4, 2}, 0.5, dtype); }
Tensor kernel(DType dtype) { return Tensor::full({3, 3, 2, 2}, 0.5, dtype); }
Tensor labels() { return Tensor::zeros({2}, int64); }

template <Tensor (*F)(const Tensor&)>
Tensor of_one(DType a, DType) {
  return F(rows(a));
}
template <Tensor (*F)(const Tensor&, const Tensor&)>
Tensor of_two(DType a, DType b) {
  return F(rows(a), rows(b));
}

constexpr NormOptions with_relu{.activation = Activation::relu};

constexpr std::array calls{
    OpCall{"add", of_two<add>},
    OpCall{"subtract", of_two<subtract>},
    OpCall{"multiply", of_two<multiply>},
    OpCall{"divide", of_two<divide>},
    OpCall{"maximum", of_two<maximum>},
    OpCall{"minimum", of_two<minimum>},
    OpCall{"scale", [](DType a, DType) { return scale(rows(a), 2); }},
    OpCall{"reciprocal", [](DType a, DType) { return reciprocal(rows(a)); }},
    OpCall{"negative", of_one<negative>},
    OpCall{"equal", of_two<equal>, boolean},
    OpCall{"not_equal", of_two<not_equal>, boolean},
    OpCall{"less", of_two<less>, boolean},
    OpCall{"less_equal", of_two<less_equal>, boolean},
    OpCall{"where",
           [](DType a, DType b) {
             return where(Tensor::ones({2, 4}, boolean), rows(a), rows(b));
           }},
    OpCall{"exp", of_one<exp>},
    OpCall{"log", of_one<log>},
    OpCall{"sqrt", of_one<sqrt>},
    OpCall{"abs", of_one<abs>},
    OpCall{"clip", [](DType a, DType) { return clip(rows(a), 0, 1); }},
    OpCall{"power", [](DType a, DType) { return power(rows(a), 3); }},
    OpCall{"relu", of_one<relu>},
    OpCall{"sigmoid", of_one<sigmoid>},
    OpCall{"tanh", of_one<tanh>},
    OpCall{"gelu", of_one<gelu>},
    OpCall{"silu", of_one<silu>},
    OpCall{"cast", [](DType a, DType) { return cast(rows(a), float64); }, float64},
    OpCall{"dropout", [](DType a, DType) { return dropout(rows(a), 0.5); }},
    OpCall{"matmul", [](DType a, DType b) { return matmul(rows(a), square(b)); }},
    OpCall{"linear", [](DType a, DType b) { return linear(rows(a), square(b)); }},
    OpCall{"linear_activation",
           [](DType a, DType b) { return linear(rows(a), square(b), vector(b), Activation::relu); }},
    OpCall{"conv2d", [](DType a, DType b) { return conv2d(image(a), kernel(b)); }},
    OpCall{"conv2d_relu",
           [](DType a, DType b) { return conv2d(image(a), kernel(b), {}, {.activation = Activation::relu}); }},
    OpCall{"max_pool2d", [](DType a, DType) { return max_pool2d(image(a)); }},
    OpCall{"avg_pool2d", [](DType a, DType) { return avg_pool2d(image(a)); }},
    OpCall{"adaptive_avg_pool2d", [](DType a, DType) { return adaptive_avg_pool2d(image(a), 2); }},
    OpCall{"sum", [](DType a, DType) { return sum(rows(a)); }},
    OpCall{"mean", [](DType a, DType) { return mean(rows(a)); }},
    OpCall{"max", [](DType a, DType) { return max(rows(a)); }},
    OpCall{"min", [](DType a, DType) { return min(rows(a)); }},
    OpCall{"argmax", [](DType a, DType) { return argmax(rows(a)); }, int64},
    OpCall{"softmax", [](DType a, DType) { return softmax(rows(a)); }},
    OpCall{"log_softmax", [](DType a, DType) { return log_softmax(rows(a)); }},
    OpCall{"batch_norm", [](DType a, DType) { return batch_norm(rows(a)).y; }},
    OpCall{"batch_norm_activation", [](DType a, DType) { return batch_norm(rows(a), {}, {}, with_relu).y; }},
    OpCall{"batch_norm_eval",
           [](DType a, DType) { return batch_norm(rows(a), vector(float32), vector(float32), {}, {}); }},
    OpCall{"batch_norm_eval_activation",
           [](DType a, DType) { return batch_norm(rows(a), vector(float32), vector(float32), {}, {}, with_relu); }},
    OpCall{"layer_norm", [](DType a, DType) { return layer_norm(rows(a), {4}); }},
    OpCall{"layer_norm_activation", [](DType a, DType) { return layer_norm(rows(a), {4}, {}, {}, with_relu); }},
    OpCall{"group_norm", [](DType a, DType) { return group_norm(rows(a), 2); }},
    OpCall{"group_norm_activation", [](DType a, DType) { return group_norm(rows(a), 2, {}, {}, with_relu); }},
    OpCall{"cross_entropy",
           [](DType a, DType) {
             return cross_entropy(Tensor::full({2, 100}, 0.5, a), labels());
           }},
    OpCall{"cross_entropy_few", [](DType a, DType) { return cross_entropy(rows(a), labels()); }},
    OpCall{"cross_entropy_soft", [](DType a, DType b) { return cross_entropy(rows(a), rows(b)); }},
    OpCall{"mse_loss", [](DType a, DType b) { return mse_loss(rows(a), rows(b)); }},
    OpCall{"mae_loss", [](DType a, DType b) { return mae_loss(rows(a), rows(b)); }},
    OpCall{"bce_with_logits_loss", [](DType a, DType b) { return bce_with_logits_loss(rows(a), rows(b)); }},
    OpCall{"bce_loss", [](DType a, DType b) { return bce_loss(rows(a), rows(b)); }},
    OpCall{"reshape",
           [](DType a, DType) {
             return reshape(rows(a), {4, 2});
           }},
    OpCall{"transpose", [](DType a, DType) { return transpose(rows(a)); }},
    OpCall{"broadcast_to",
           [](DType a, DType) {
             return broadcast_to(vector(a), {2, 4});
           }},
    OpCall{"slice", [](DType a, DType) { return slice(rows(a), {{.start = 1}}); }},
    OpCall{"take", [](DType a, DType) { return take(rows(a), labels()); }},
    OpCall{"concatenate",
           [](DType a, DType b) {
             return concatenate(std::array{rows(a), rows(b)});
           }},
    OpCall{"one_hot", [](DType, DType) { return one_hot(labels(), 3); }, float32},
};

}  // namespace

const OpCall* call_of(std::string_view op) {
  const auto at = std::ranges::find(calls, op, &OpCall::op);
  return at == calls.end() ? nullptr : &*at;
}

std::optional<DType> result_dtype(const OpCall& call, DType first, DType second) {
  Tracer tracer;
  {
    const NoGrad no_grad;
    const Scoped<&Context::tracer> traced(&tracer);
    call.run(first, second);
  }
  const auto step = std::ranges::find_if(tracer.steps, [&](const Tracer::Step& s) { return s.op->name == call.op; });
  if (step == tracer.steps.end()) return {};
  return step->out[0].dtype();
}

DType ruled_dtype(CastPolicy policy, const OpCall& call, DType operands, std::optional<DType> autocast) {
  if (call.own) return *call.own;
  if (!autocast) return operands;
  switch (policy) {
    case CastPolicy::low: return *autocast;
    case CastPolicy::keep32: return is_half(operands) ? float32 : operands;
    default: return operands;
  }
}

}  // namespace everyo::verify_room
