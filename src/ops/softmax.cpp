#include "kernels/softmax.h"

#include "ops/elementwise.h"
#include "ops/lowering.h"

// softmax and log_softmax of x [.., K, ..] along one axis of K classes -> y of the same shape; g is y's gradient.
namespace everyo::inline v1 {
namespace {

struct SoftmaxAttrs {
  std::int64_t axis;
};
Attributes describe(const SoftmaxAttrs& a) { return {{"axis", a.axis}}; }

kernels::SoftmaxShape lines_of(const Shape& shape, std::int64_t axis) {
  kernels::SoftmaxShape lines{1, shape[axis], 1};
  for (std::int64_t d = 0; d < shape.rank(); ++d)
    if (d != axis) (d < axis ? lines.outer : lines.inner) *= shape[d];
  return lines;
}

template <bool logarithm>
constexpr Record<SoftmaxAttrs> softmax_record_of(const char* name) {
  return {.name = name,
          .policy = CastPolicy::keep32,
          .saves = {.outputs = {for_grad_of(0)}},
          .infer = [](const Inputs& in, const SoftmaxAttrs&) -> Specs {
            require_floating(logarithm ? "log_softmax" : "softmax", in[0]);
            return in[0].spec();
          },
          .forward =
              [](const Call& c, const SoftmaxAttrs& a) {
                const Tensor &x = c.in[0], &y = c.out[0];
                const auto run = logarithm ? kernels::log_softmax : kernels::softmax;
                run(x.dtype(), lines_of(x.shape(), a.axis), x.bytes(), y.bytes());
              },
          .backward =
              [](Backward& b, const SoftmaxAttrs& a) {
                const Tensor &y = b.output(), &g = b.grad();
                const Tensor grad_x = b.owns_grad() ? g : Tensor::empty(y.spec());
                const auto run = logarithm ? kernels::log_softmax_backward : kernels::softmax_backward;
                run(y.dtype(), lines_of(y.shape(), a.axis), y.bytes(), g.bytes(), grad_x.bytes());
                b.give(0, grad_x);
              },
          // A maximum, a difference, an exponential, a sum and a quotient or difference.
          .cost = [](const Inputs& in, const Specs& out, const SoftmaxAttrs&) { return elementwise_cost(in, out, 5); },
          .onnx = [](onnx::Graph& g, const onnx::Values& in, const SoftmaxAttrs& a) -> onnx::Values {
            return {lower_wide(g, in[0], [&](const onnx::Value& x) {
              return g.node(logarithm ? "LogSoftmax" : "Softmax", {x}, x.spec, {{"axis", a.axis}});
            })};
          },
          .composed = no("primitive")};
}
constexpr Record<SoftmaxAttrs> softmax_record = softmax_record_of<false>("softmax");
constexpr Record<SoftmaxAttrs> log_softmax_record = softmax_record_of<true>("log_softmax");

}  // namespace

extern const Op *const softmax_op, *const log_softmax_op;
constinit const Op* const softmax_op = &op_of<softmax_record>;
constinit const Op* const log_softmax_op = &op_of<log_softmax_record>;

Tensor softmax(const Tensor& x, std::int64_t axis) {
  return apply<softmax_record>({axis_of("softmax", axis, x.rank())}, as_float32_under_autocast(x));
}

Tensor log_softmax(const Tensor& x, std::int64_t axis) {
  return apply<log_softmax_record>({axis_of("log_softmax", axis, x.rank())}, as_float32_under_autocast(x));
}

}  // namespace everyo::inline v1
