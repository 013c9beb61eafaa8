#include "kernels/binary.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// equal, not_equal, less, less_equal as records; greater and greater_equal are these with the operands exchanged.
// a [A], b [B] -> bool [A broadcast with B].
namespace everyo::inline v1 {
namespace {

using kernels::Comparison;

constexpr const char* name_of_op(Comparison op) {
  switch (op) {
    case Comparison::equal: return "equal";
    case Comparison::not_equal: return "not_equal";
    case Comparison::less: return "less";
    case Comparison::less_equal: break;
  }
  return "less_equal";
}

template <Comparison op>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const NoAttrs&) {
  const Spec spec{boolean, broadcast_shape(name_of_op(op), in[0].spec.shape, in[1].spec.shape)};
  onnx::Values v = in;  // the runtime orders neither bools nor bytes
  for (onnx::Value& value : v)
    if (value.spec.dtype == boolean || value.spec.dtype == uint8) value = lower_cast(g, value, int32);
  switch (op) {
    case Comparison::less: return {g.node("Less", {v[0], v[1]}, spec)};
    case Comparison::less_equal: return {g.node("LessOrEqual", {v[0], v[1]}, spec)};
    case Comparison::equal: return {g.node("Equal", {v[0], v[1]}, spec)};
    case Comparison::not_equal: break;
  }
  return {g.node("Not", {g.node("Equal", {v[0], v[1]}, spec)}, spec)};
}

template <Comparison op>
constexpr Record<> comparison_record() {
  return {.name = name_of_op(op),
          .policy = CastPolicy::promote,
          .infer = [](const Inputs& in, const NoAttrs&) -> Specs {
            return Spec{boolean, broadcast_shape(name_of_op(op), in[0].shape(), in[1].shape())};
          },
          .forward =
              [](const Call& c, const NoAttrs&) {
                const Tensor &a = c.in[0], &b = c.in[1], &y = c.out[0];
                kernels::compare(op, a.dtype(), kernels::broadcast_plan<2>(y.shape(), {&a.shape(), &b.shape()}),
                                 a.bytes(), b.bytes(), y.data<bool>().data());
              },
          .backward = no("a comparison is a step: its gradient is 0 or undefined"),
          .cost = [](const Inputs& in, const Specs& out, const NoAttrs&) { return elementwise_cost(in, out, 1); },
          .onnx = lower<op>,
          .composed = no("primitive")};
}

constexpr Record<> equal_record = comparison_record<Comparison::equal>();
constexpr Record<> not_equal_record = comparison_record<Comparison::not_equal>();
constexpr Record<> less_record = comparison_record<Comparison::less>();
constexpr Record<> less_equal_record = comparison_record<Comparison::less_equal>();

template <const auto& record>
Tensor compared(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return apply<record>({}, a, b);
  DType dtype = promote(a.dtype(), b.dtype());
  // As NumPy: float32 would take 16777217 and 16777216 for equal.
  const auto wide = [](DType one) { return one == int32 || one == int64; };
  if (is_floating(dtype) && (wide(a.dtype()) || wide(b.dtype()))) dtype = float64;
  return apply<record>({}, cast(a, dtype), cast(b, dtype));
}

}  // namespace

extern const Op *const equal_op, *const not_equal_op, *const less_op, *const less_equal_op;
constinit const Op* const equal_op = &op_of<equal_record>;
constinit const Op* const not_equal_op = &op_of<not_equal_record>;
constinit const Op* const less_op = &op_of<less_record>;
constinit const Op* const less_equal_op = &op_of<less_equal_record>;

Tensor equal(const Tensor& a, const Tensor& b) { return compared<equal_record>(a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return compared<not_equal_record>(a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return compared<less_record>(a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return compared<less_equal_record>(a, b); }
Tensor greater(const Tensor& a, const Tensor& b) { return compared<less_record>(b, a); }
Tensor greater_equal(const Tensor& a, const Tensor& b) { return compared<less_equal_record>(b, a); }

}  // namespace everyo::inline v1
