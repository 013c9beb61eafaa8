#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// Ops that move values and compute nothing: reshape and what is made of it (views), transpose, broadcast_to.
namespace everyo::inline v1 {
namespace {

template <class A>
Cost move_cost(const Inputs&, const Specs& out, const A&) {
  return {.flops = 0, .bytes = 2 * static_cast<double>(out[0].bytes())};
}

std::vector<std::int64_t> list_of(const Shape& shape) { return {shape.sizes().begin(), shape.sizes().end()}; }

// ---- reshape: x of any shape -> the same values in another ------------------------------------------------------

struct ReshapeAttrs {
  Shape shape;
};
Attributes describe(const ReshapeAttrs& a) { return {{"shape", list_of(a.shape)}}; }

onnx::Values lower_reshape(onnx::Graph& g, const onnx::Values& in, const ReshapeAttrs& a) {
  const onnx::Value shape = g.integers(list_of(a.shape));
  // Reshape takes a size of 0 for the input's; what has no elements can be made anew.
  if (a.shape.elements() == 0)
    return {lower_cast(g, g.node("ConstantOfShape", {shape}, {float32, a.shape}), in[0].spec.dtype)};
  return {g.node("Reshape", {in[0], shape}, {in[0].spec.dtype, a.shape})};
}

constexpr Record<ReshapeAttrs> reshape_record{
    .name = "reshape",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const ReshapeAttrs& a) -> Specs {
      if (in[0].size() != a.shape.elements())
        throw ShapeError(
            fmt::format("[reshape] Cannot reshape {} ({} elements) into {} ({} elements); the numbers of "
                        "elements must be equal",
                        to_string(in[0].shape()), in[0].size(), to_string(a.shape), a.shape.elements()));
      return Spec{in[0].dtype(), a.shape};
    },
    .forward =
        [](const Call& c, const ReshapeAttrs&) {
          const Tensor& x = c.in[0];
          kernels::copy_strided({x.size()}, size_of(x.dtype()), x.bytes(), {1}, c.out[0].bytes(), {1});
        },
    .view = [](const Inputs&, const ReshapeAttrs&) -> std::optional<std::size_t> { return 0; },
    .backward = [](Backward& b, const ReshapeAttrs&) { b.give(0, reshape(b.grad(), b.input_spec(0).shape.sizes())); },
    .cost = [](const Inputs&, const Specs&, const ReshapeAttrs&) { return Cost{}; },
    .onnx = lower_reshape,
    .composed = no("primitive"),
    .specs = true};

// ---- transpose: dimension i of y is dimension axes[i] of x ----------------------------------------------------------

struct TransposeAttrs {
  std::int64_t rank = 0;
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> axes{};
  [[nodiscard]] std::span<const std::int64_t> list() const {
    return std::span(axes).first(static_cast<std::size_t>(rank));
  }
};
Attributes describe(const TransposeAttrs& a) {
  return {{"axes", std::vector<std::int64_t>(a.list().begin(), a.list().end())}};
}

Shape permuted(const Shape& x, const TransposeAttrs& a) {
  Shape y;
  for (const std::int64_t axis : a.list()) y.push_back(x[axis]);
  return y;
}

Tensor transposed(const Tensor& x, const TransposeAttrs& a, const Tensor& out) {
  kernels::transpose(x.shape(), a.list(), size_of(x.dtype()), x.bytes(), out.bytes());
  return out;
}

constexpr Record<TransposeAttrs> transpose_record{
    .name = "transpose",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const TransposeAttrs& a) -> Specs {
      return Spec{in[0].dtype(), permuted(in[0].shape(), a)};
    },
    .forward = [](const Call& c, const TransposeAttrs& a) { transposed(c.in[0], a, c.out[0]); },
    .backward =
        [](Backward& b, const TransposeAttrs& a) {
          const Tensor& g = b.grad();
          TransposeAttrs inverse{.rank = a.rank};
          for (std::int64_t d = 0; d < g.rank(); ++d)
            inverse.axes[static_cast<std::size_t>(a.axes[static_cast<std::size_t>(d)])] = d;
          b.give(0, transposed(g, inverse, Tensor::empty({g.dtype(), permuted(g.shape(), inverse)})));
        },
    .cost = move_cost<TransposeAttrs>,
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const TransposeAttrs& a) -> onnx::Values {
      const std::vector<std::int64_t> axes(a.list().begin(), a.list().end());
      return {g.node("Transpose", {in[0]}, {in[0].spec.dtype, permuted(in[0].spec.shape, a)}, {{"perm", axes}})};
    },
    .composed = no("primitive"),
    .cheap = true};

// ---- broadcast_to: x repeated along new leading dimensions and those of size 1 --------------------------------------

struct BroadcastAttrs {
  Shape shape;
};
Attributes describe(const BroadcastAttrs& a) { return {{"shape", list_of(a.shape)}}; }

constexpr Record<BroadcastAttrs> broadcast_to_record{
    .name = "broadcast_to",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const BroadcastAttrs& a) -> Specs {
      const Shape& x = in[0].shape();
      bool fits = x.rank() <= a.shape.rank();
      for (std::int64_t d = 1; fits && d <= x.rank(); ++d) fits = x[-d] == 1 || x[-d] == a.shape[-d];
      if (!fits)
        throw ShapeError(
            fmt::format("[broadcast_to] shape {} does not broadcast to {}; from the last on, each size must "
                        "be equal or 1",
                        to_string(x), to_string(a.shape)));
      return Spec{in[0].dtype(), a.shape};
    },
    .forward =
        [](const Call& c, const BroadcastAttrs& a) {
          const Tensor& x = c.in[0];
          const kernels::Strides strides = kernels::contiguous_strides(x.shape());
          kernels::Strides from{};
          for (std::int64_t d = 1; d <= x.rank(); ++d)
            if (x.shape()[-d] != 1)
              from[static_cast<std::size_t>(a.shape.rank() - d)] = strides[static_cast<std::size_t>(x.rank() - d)];
          kernels::copy_strided(a.shape, size_of(x.dtype()), x.bytes(), from, c.out[0].bytes(),
                                kernels::contiguous_strides(a.shape));
        },
    .backward = [](Backward& b, const BroadcastAttrs&) { give_reduced(b, 0, b.grad(), b.input_spec(0).shape); },
    .cost = move_cost<BroadcastAttrs>,
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const BroadcastAttrs& a) -> onnx::Values {
      std::vector<std::int64_t> wanted = list_of(a.shape);
      const Shape& x = in[0].spec.shape;
      for (std::int64_t d = 1; d <= x.rank(); ++d)  // 1 keeps the input's size, so that a batch stays free
        if (x[-d] == a.shape[-d]) wanted[static_cast<std::size_t>(a.shape.rank() - d)] = 1;
      return {g.node("Expand", {in[0], g.integers(wanted)}, {in[0].spec.dtype, a.shape})};
    },
    .composed = no("primitive"),
    .specs = true};

}  // namespace

extern const Op *const reshape_op, *const transpose_op, *const broadcast_to_op;
constinit const Op* const reshape_op = &op_of<reshape_record>;
constinit const Op* const transpose_op = &op_of<transpose_record>;
constinit const Op* const broadcast_to_op = &op_of<broadcast_to_record>;

Tensor reshape(const Tensor& x, std::span<const std::int64_t> sizes) {
  const auto refuse = [&](std::string_view why) {
    throw ShapeError(
        fmt::format("[reshape] Cannot reshape {} into ({}): {}", to_string(x.shape()), fmt::join(sizes, ", "), why));
  };
  std::optional<std::size_t> free;
  Shape shape;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < -1) refuse("a size is negative; only one -1 stands for what the others leave");
    if (sizes[i] == -1 && free) refuse("two sizes are -1; only one can be left open");
    if (sizes[i] == -1) free = i;
    try {
      shape.push_back(sizes[i] == -1 ? 1 : sizes[i]);
    } catch (const ShapeError& beyond) {
      refuse(beyond.what());
    }
  }
  if (!free) return apply<reshape_record>({shape}, x);
  const std::int64_t known = shape.elements();
  if (known == 0 || x.size() % known != 0)
    refuse(fmt::format("{} elements do not divide by {}, the product of the other sizes", x.size(), known));
  shape.set(static_cast<std::int64_t>(*free), x.size() / known);
  return apply<reshape_record>({shape}, x);
}

Tensor flatten(const Tensor& x, std::int64_t start_axis) {
  if (x.rank() == 0) return reshape(x, {1});
  const std::int64_t start = axis_of("flatten", start_axis, x.rank());
  Shape shape;
  for (std::int64_t d = 0; d < start; ++d) shape.push_back(x.shape()[d]);
  std::int64_t rest = 1;
  for (std::int64_t d = start; d < x.rank(); ++d) rest *= x.shape()[d];
  shape.push_back(rest);
  return apply<reshape_record>({shape}, x);
}

Tensor squeeze(const Tensor& x, std::int64_t axis) {
  const std::int64_t gone = axis_of("squeeze", axis, x.rank());
  if (x.shape()[gone] != 1)
    throw ShapeError(fmt::format("[squeeze] axis {} of shape {} has size {}; only an axis of size 1 can go", axis,
                                 to_string(x.shape()), x.shape()[gone]));
  Shape shape;
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (d != gone) shape.push_back(x.shape()[d]);
  return apply<reshape_record>({shape}, x);
}

Tensor expand_dims(const Tensor& x, std::int64_t axis) {
  const std::int64_t at = axis_of("expand_dims", axis, x.rank() + 1);
  Shape shape;
  for (std::int64_t d = 0; d <= x.rank(); ++d) shape.push_back(d == at ? 1 : x.shape()[d < at ? d : d - 1]);
  return apply<reshape_record>({shape}, x);
}

Tensor transpose(const Tensor& x, const Axes& axes) {
  const std::int64_t rank = x.rank();
  TransposeAttrs attrs{.rank = rank};
  bool permutes = axes.empty() || static_cast<std::int64_t>(axes.size()) == rank;
  kernels::AxisSet seen = 0;
  for (std::int64_t d = 0; permutes && d < rank; ++d) {
    std::int64_t axis = axes.empty() ? rank - 1 - d : axes[static_cast<std::size_t>(d)];
    if (axis < 0) axis += rank;
    permutes = axis >= 0 && axis < rank && (seen & kernels::axis_bit(axis)) == 0;
    if (!permutes) break;
    seen |= kernels::axis_bit(axis);
    attrs.axes[static_cast<std::size_t>(d)] = axis;
  }
  if (!permutes)
    throw ShapeError(fmt::format("[transpose] axes ({}) are no permutation of the {} dimensions of {}; name each once",
                                 fmt::join(axes, ", "), rank, to_string(x.shape())));
  return apply<transpose_record>(attrs, x);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : apply<broadcast_to_record>({shape}, x);
}

}  // namespace everyo::inline v1
