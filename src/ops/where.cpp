#include <fmt/format.h>

#include "kernels/binary.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// where: condition [C] bool, a [A], b [B] -> y [C, A and B broadcast]; g is y's gradient.
namespace everyo::inline v1 {
namespace {

Shape where_shape(const Shape& condition, const Shape& a, const Shape& b) {
  return broadcast_shape("where", condition, broadcast_shape("where", a, b));
}

// g where the condition is `side`, 0 elsewhere.
Tensor masked(const Tensor& condition, const Tensor& g, bool side) {
  const Tensor y = Tensor::empty(g.spec());
  constexpr std::uint64_t zero = 0;
  const Shape scalar;
  const Shape* const yes = side ? &g.shape() : &scalar;
  const Shape* const other = side ? &scalar : &g.shape();
  const void *zeros = &zero, *values = g.bytes();
  kernels::select(size_of(g.dtype()), kernels::broadcast_plan<3>(g.shape(), {&condition.shape(), yes, other}),
                  condition.data<bool>().data(), side ? values : zeros, side ? zeros : values, y.bytes());
  return y;
}

constexpr Record<> where_record{
    .name = "where",
    .policy = CastPolicy::promote,
    .saves = {.inputs = {for_grad_of(1, 2)}},
    .infer = [](const Inputs& in, const NoAttrs&) -> Specs {
      if (in[0].dtype() != boolean)
        throw DTypeError(fmt::format("[where] the condition is {}; it must be bool", name_of(in[0].dtype())));
      if (in[1].dtype() != in[2].dtype())
        throw DTypeError(fmt::format("[where] operands are {} and {}; cast one of them", name_of(in[1].dtype()),
                                     name_of(in[2].dtype())));
      return Spec{in[1].dtype(), where_shape(in[0].shape(), in[1].shape(), in[2].shape())};
    },
    .forward =
        [](const Call& c, const NoAttrs&) {
          const Tensor &condition = c.in[0], &a = c.in[1], &b = c.in[2], &y = c.out[0];
          kernels::select(size_of(y.dtype()),
                          kernels::broadcast_plan<3>(y.shape(), {&condition.shape(), &a.shape(), &b.shape()}),
                          condition.data<bool>().data(), a.bytes(), b.bytes(), y.bytes());
        },
    .backward =
        [](Backward& b, const NoAttrs&) {
          for (const std::size_t i : {1u, 2u})
            if (b.needs(i)) give_reduced(b, i, masked(b.input(0), b.grad(), i == 1), b.input_spec(i).shape);
        },
    .cost = [](const Inputs& in, const Specs& out, const NoAttrs&) { return elementwise_cost(in, out, 1); },
    .onnx = [](onnx::Graph& g, const onnx::Values& v, const NoAttrs&) -> onnx::Values {
      const DType dtype = v[1].spec.dtype, chosen = dtype == boolean ? uint8 : dtype;  // the runtime chooses no bools
      return {lower_cast(g,
                         g.node("Where", {v[0], lower_cast(g, v[1], chosen), lower_cast(g, v[2], chosen)},
                                {chosen, where_shape(v[0].spec.shape, v[1].spec.shape, v[2].spec.shape)}),
                         dtype)};
    },
    .composed = no("primitive"),
    .specs = true};

}  // namespace

extern const Op* const where_op;
constinit const Op* const where_op = &op_of<where_record>;

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const DType dtype = promote(a.dtype(), b.dtype());
  return apply<where_record>({}, condition, cast(a, dtype), cast(b, dtype));
}

}  // namespace everyo::inline v1
