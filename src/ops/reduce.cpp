#include "kernels/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/index.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// Reductions: x [..] over a set of axes -> y, those axes gone, or of size 1 with keep_dims; g is y's gradient.
namespace everyo::inline v1 {
namespace {

using kernels::axis_bit;
using kernels::AxisSet;
using kernels::ReduceKind;

struct ReduceAttrs {
  AxisSet axes = 0;
  bool keep_dims = false;
  bool unnamed = false;  // all axes, none of them named
};

std::vector<std::int64_t> list_of(AxisSet axes) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 0; d < Shape::max_rank; ++d)
    if ((axes & axis_bit(d)) != 0) list.push_back(d);
  return list;
}

Attributes describe(const ReduceAttrs& a) {
  return {{"axes", a.unnamed ? AttributeValue() : AttributeValue(list_of(a.axes))}, {"keepdims", a.keep_dims}};
}

Shape reduced_shape(const Shape& shape, const ReduceAttrs& a) {
  Shape result;
  for (std::int64_t d = 0; d < shape.rank(); ++d) {
    if ((a.axes & axis_bit(d)) == 0)
      result.push_back(shape[d]);
    else if (a.keep_dims)
      result.push_back(1);
  }
  return result;
}

AxisSet axes_of(std::string_view op, const Tensor& x, const Axes& axes) {
  if (axes.empty()) return kernels::all_axes(x.rank());
  AxisSet set = 0;
  for (const std::int64_t axis : axes) {
    const AxisSet bit = axis_bit(axis_of(op, axis, x.rank()));
    if ((set & bit) != 0)
      throw ShapeError(
          fmt::format("[{}] axis {} is named twice for shape {}; name each axis once", op, axis, to_string(x.shape())));
    set |= bit;
  }
  return set;
}

// g [the reduced shape] repeated along the reduced axes: a tensor of `spec`.
Tensor repeated(const Tensor& g, const Spec& spec, AxisSet axes) {
  const Tensor out = Tensor::empty(spec);
  if (g.size() == 1) {
    kernels::fill(spec.dtype, out.bytes(), out.size(), g.item());
    return out;
  }
  kernels::Strides from{};
  std::int64_t stride = 1;
  for (std::int64_t d = spec.shape.rank() - 1; d >= 0; --d) {
    if ((axes & axis_bit(d)) != 0) continue;
    from[static_cast<std::size_t>(d)] = stride;
    stride *= spec.shape[d];
  }
  kernels::copy_strided(spec.shape, size_of(spec.dtype), g.bytes(), from, out.bytes(),
                        kernels::contiguous_strides(spec.shape));
  return out;
}

Cost cost(const Inputs& in, const Specs& out, const ReduceAttrs&) {
  return {.flops = static_cast<double>(in[0].size()),
          .bytes = static_cast<double>(in[0].spec().bytes() + out[0].bytes())};
}

template <ReduceKind kind>
Spec spec_of(const Spec& x, const ReduceAttrs& a) {
  return {kind == ReduceKind::sum ? kernels::sum_dtype(x.dtype) : x.dtype, reduced_shape(x.shape, a)};
}

template <ReduceKind kind>
void forward(const Call& c, const ReduceAttrs& a) {
  const Tensor &x = c.in[0], &y = c.out[0];
  kernels::reduce(kind, kernels::reduce_layout(x.shape(), a.axes), x.dtype(), x.bytes(), y.dtype(), y.bytes());
}

// ---- sum and mean: their gradient is g, or g / count, at every element -------------------------------------------

template <ReduceKind kind>
void linear_backward(Backward& b, const ReduceAttrs& a) {
  const Spec x = b.input_spec(0);
  Tensor g = b.grad();
  if constexpr (kind == ReduceKind::mean) {
    const double count =
        static_cast<double>(x.shape.elements()) / static_cast<double>(std::max<std::int64_t>(1, g.size()));
    const Tensor share = Tensor::empty(g.spec());
    kernels::unary_forward(kernels::Unary::scale, g.dtype(), g.bytes(), share.bytes(), g.size(), {1 / count, 0});
    g = share;
  }
  b.give(0, repeated(g, x, a.axes));
}

onnx::Values lower_sum(onnx::Graph& g, const onnx::Values& in, const ReduceAttrs& a) {
  const Spec spec = spec_of<ReduceKind::sum>(in[0].spec, a);
  return {lower_wide(g, lower_cast(g, in[0], spec.dtype), [&](const onnx::Value& x) {
    return lower_reduction(g, "ReduceSum", x, list_of(a.axes), a.keep_dims, spec.shape);
  })};
}

template <ReduceKind kind>
onnx::Values lower(onnx::Graph& g, const onnx::Values& in, const ReduceAttrs& a) {
  const Spec spec = spec_of<kind>(in[0].spec, a);
  const char* type = kind == ReduceKind::mean ? "ReduceMean" : kind == ReduceKind::max ? "ReduceMax" : "ReduceMin";
  const auto reduced = [&](const onnx::Value& x) {
    return lower_reduction(g, type, x, list_of(a.axes), a.keep_dims, spec.shape);
  };
  if (spec.dtype == boolean) return {lower_cast(g, reduced(lower_cast(g, in[0], int32)), boolean)};
  return {lower_wide(g, in[0], reduced)};
}

constexpr Record<ReduceAttrs> sum_record{
    .name = "sum",
    .policy = CastPolicy::keep32,
    .infer = [](const Inputs& in, const ReduceAttrs& a) -> Specs { return spec_of<ReduceKind::sum>(in[0].spec(), a); },
    .forward = forward<ReduceKind::sum>,
    .backward = linear_backward<ReduceKind::sum>,
    .cost = cost,
    .onnx = lower_sum,
    .composed = no("primitive"),
    .specs = true};

constexpr Record<ReduceAttrs> mean_record{.name = "mean",
                                          .policy = CastPolicy::keep32,
                                          .infer = [](const Inputs& in, const ReduceAttrs& a) -> Specs {
                                            require_floating("mean", in[0]);
                                            return spec_of<ReduceKind::mean>(in[0].spec(), a);
                                          },
                                          .forward = forward<ReduceKind::mean>,
                                          .backward = linear_backward<ReduceKind::mean>,
                                          .cost = cost,
                                          .onnx = lower<ReduceKind::mean>,
                                          .composed = no("primitive"),
                                          .specs = true};

// ---- max and min: elements that tie share the gradient equally ------------------------------------------------------

template <ReduceKind kind>
constexpr Record<ReduceAttrs> extreme_record(const char* name) {
  return {.name = name,
          .policy = CastPolicy::follow,
          .saves = {.inputs = {for_grad_of(0)}, .outputs = {for_grad_of(0)}},
          .infer = [](const Inputs& in, const ReduceAttrs& a) -> Specs {
            const Spec y = spec_of<kind>(in[0].spec(), a);
            if (in[0].size() == 0 && y.shape.elements() != 0)
              throw ShapeError(
                  fmt::format("[{}] shape {} has no element along the reduced axes; the result {} would have "
                              "no value; reduce over axes with elements",
                              kind == ReduceKind::max ? "max" : "min", to_string(in[0].shape()), to_string(y.shape)));
            return y;
          },
          .forward = forward<kind>,
          .backward =
              [](Backward& b, const ReduceAttrs& a) {
                const Tensor &x = b.input(0), grad_x = Tensor::empty(x.spec());
                kernels::reduce_extreme_backward(kernels::reduce_layout(x.shape(), a.axes), x.dtype(), x.bytes(),
                                                 b.output().bytes(), b.grad().bytes(), grad_x.bytes());
                b.give(0, grad_x);
              },
          .cost = cost,
          .onnx = lower<kind>,
          .composed = no("primitive")};
}
constexpr Record<ReduceAttrs> max_record = extreme_record<ReduceKind::max>("max");
constexpr Record<ReduceAttrs> min_record = extreme_record<ReduceKind::min>("min");

// ---- argmax ---------------------------------------------------------------------------------------------------------

struct AxisAttrs {
  std::int64_t axis;
};
Attributes describe(const AxisAttrs& a) { return {{"axis", a.axis}}; }

constexpr Record<AxisAttrs> argmax_record{
    .name = "argmax",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const AxisAttrs& a) -> Specs {
      const Shape& x = in[0].shape();
      if (x[a.axis] == 0)
        throw ShapeError(
            fmt::format("[argmax] axis {} of shape {} has no elements; there is no largest one", a.axis, to_string(x)));
      return Spec{int64, reduced_shape(x, {axis_bit(a.axis), false})};
    },
    .forward =
        [](const Call& c, const AxisAttrs& a) {
          const Shape& x = c.in[0].shape();
          std::int64_t outer = 1, inner = 1;
          for (std::int64_t d = 0; d < x.rank(); ++d)
            if (d != a.axis) (d < a.axis ? outer : inner) *= x[d];
          kernels::argmax(c.in[0].dtype(), c.in[0].bytes(), outer, x[a.axis], inner,
                          c.out[0].data<std::int64_t>().data());
        },
    .backward = no("indices have no gradient"),
    .cost = [](const Inputs& in, const Specs& out, const AxisAttrs&) { return cost(in, out, {}); },
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const AxisAttrs& a) -> onnx::Values {
      const Spec spec{int64, reduced_shape(in[0].spec.shape, {axis_bit(a.axis), false})};
      const onnx::Value x = in[0].spec.dtype == boolean ? lower_cast(g, in[0], int32) : in[0];
      if (x.spec.dtype != int64)
        return {g.node("ArgMax", {x}, spec, {{"axis", a.axis}, {"keepdims", std::int64_t{0}}})};
      // The runtime has no ArgMax of int64; the first of the largest is the same, with an axis of size 1 to drop.
      Shape one = x.spec.shape;
      one.set(a.axis, 1);
      const onnx::Values top =
          g.node_of("TopK", {x, g.integers({1})}, {{int64, one}, {int64, one}}, {{"axis", a.axis}});
      return {g.node("Squeeze", {top[1], g.integers({a.axis})}, spec)};
    },
    .composed = no("primitive")};

}  // namespace

extern const Op *const sum_op, *const mean_op, *const max_op, *const min_op, *const argmax_op;
constinit const Op* const sum_op = &op_of<sum_record>;
constinit const Op* const mean_op = &op_of<mean_record>;
constinit const Op* const max_op = &op_of<max_record>;
constinit const Op* const min_op = &op_of<min_record>;
constinit const Op* const argmax_op = &op_of<argmax_record>;

Tensor sum(const Tensor& x, const Axes& axes, bool keep_dims) {
  const ReduceAttrs attrs{axes_of("sum", x, axes), keep_dims, axes.empty()};
  return is_floating(x.dtype()) ? apply<sum_record>(attrs, as_float32_under_autocast(x)) : apply<sum_record>(attrs, x);
}

Tensor mean(const Tensor& x, const Axes& axes, bool keep_dims) {
  return apply<mean_record>({axes_of("mean", x, axes), keep_dims, axes.empty()}, as_float32_under_autocast(x));
}

Tensor max(const Tensor& x, const Axes& axes, bool keep_dims) {
  return apply<max_record>({axes_of("max", x, axes), keep_dims, axes.empty()}, x);
}

Tensor min(const Tensor& x, const Axes& axes, bool keep_dims) {
  return apply<min_record>({axes_of("min", x, axes), keep_dims, axes.empty()}, x);
}

Tensor variance(const Tensor& x, const Axes& axes, bool keep_dims) {
  const bool half = is_half(x.dtype());
  const Tensor wide = half ? cast(x, float32) : x;
  const Tensor centred = subtract(wide, mean(wide, axes, true));
  const Tensor result = mean(multiply(centred, centred), axes, keep_dims);
  return half && !context().autocast ? cast(result, x.dtype()) : result;
}

Tensor argmax(const Tensor& x, std::int64_t axis) {
  return apply<argmax_record>({axis_of("argmax", axis, x.rank())}, x);
}

}  // namespace everyo::inline v1
