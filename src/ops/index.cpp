#include "kernels/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/copy.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// Ops that pick and join elements: take, concatenate, stack, one_hot.
namespace everyo::inline v1 {
namespace {

// ---- take: x [outer, limit, inner] by indices [count] along its middle ----------------------------------------------

struct AxisAttrs {
  std::int64_t axis = 0;
};
Attributes describe(const AxisAttrs& a) { return {{"axis", a.axis}}; }

kernels::IndexedRows rows_of(const Shape& x, const Tensor& indices, std::int64_t axis) {
  kernels::IndexedRows rows{1, x[axis], 1, indices.size(), indices.dtype(), indices.bytes()};
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (d != axis) (d < axis ? rows.outer : rows.inner) *= x[d];
  return rows;
}

Shape taken_shape(const Shape& x, const Shape& indices, std::int64_t axis) {
  Shape y;
  for (std::int64_t d = 0; d < axis; ++d) y.push_back(x[d]);
  for (const std::int64_t size : indices.sizes()) y.push_back(size);
  for (std::int64_t d = axis + 1; d < x.rank(); ++d) y.push_back(x[d]);
  return y;
}

// Indices of any shape in lowest..limit-1, or a ShapeError that names the first one outside.
void check_indices(std::string_view op, const Tensor& indices, std::int64_t lowest, std::int64_t limit) {
  const std::int64_t bad = kernels::find_bad_index(indices.dtype(), indices.bytes(), indices.size(), lowest, limit);
  if (bad < 0) return;
  throw ShapeError(fmt::format("[{}] index {} at position {} is out of range; {} entries take {} to {}", op,
                               kernels::index_at(indices.dtype(), indices.bytes(), bad), bad, limit, lowest,
                               limit - 1));
}

void require_indices(std::string_view op, const Tensor& indices) {
  if (indices.dtype() != int64 && indices.dtype() != int32)
    throw DTypeError(fmt::format("[{}] indices are {}; they must be int64 or int32", op, name_of(indices.dtype())));
}

constexpr Record<AxisAttrs> take_record{
    .name = "take",
    .policy = CastPolicy::follow,
    .saves = {.inputs = {0, for_grad_of(0)}},
    .infer = [](const Inputs& in, const AxisAttrs& a) -> Specs {
      require_indices("take", in[1]);
      return Spec{in[0].dtype(), taken_shape(in[0].shape(), in[1].shape(), a.axis)};
    },
    .forward =
        [](const Call& c, const AxisAttrs& a) {
          const Tensor &x = c.in[0], &indices = c.in[1];
          check_indices("take", indices, -x.shape()[a.axis], x.shape()[a.axis]);
          kernels::gather_rows(rows_of(x.shape(), indices, a.axis), size_of(x.dtype()), x.bytes(), c.out[0].bytes());
        },
    .backward =
        [](Backward& b, const AxisAttrs& a) {
          const Tensor grad_x = Tensor::empty(b.input_spec(0)), &indices = b.input(1);
          const std::int64_t limit = grad_x.shape()[a.axis];
          check_indices("take", indices, -limit, limit);  // they may have been written since forward
          kernels::gather_rows_backward(rows_of(grad_x.shape(), indices, a.axis), grad_x.dtype(), b.grad().bytes(),
                                        grad_x.bytes());
          b.give(0, grad_x);
        },
    .cost = [](const Inputs& in, const Specs& out, const AxisAttrs&) -> Cost {
      return {.flops = 0, .bytes = 2 * static_cast<double>(out[0].bytes()) + static_cast<double>(in[1].spec().bytes())};
    },
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const AxisAttrs& a) -> onnx::Values {
      return {g.node("Gather", {in[0], in[1]},
                     {in[0].spec.dtype, taken_shape(in[0].spec.shape, in[1].spec.shape, a.axis)}, {{"axis", a.axis}})};
    },
    .composed = no("primitive"),
    .specs = true};

// ---- concatenate: x_i [outer, d_i, inner] -> y [outer, sum of d_i, inner] -------------------------------------------

Shape concatenated_shape(std::size_t count, const auto& shape_of, std::int64_t axis) {
  Shape y = shape_of(0);
  for (std::size_t i = 1; i < count; ++i) {
    const Shape& next = shape_of(i);
    bool fits = next.rank() == y.rank();
    for (std::int64_t d = 0; fits && d < y.rank(); ++d) fits = d == axis || next[d] == y[d];
    if (!fits)
      throw ShapeError(
          fmt::format("[concatenate] Cannot concatenate {} and {} along axis {}; all other sizes must be "
                      "equal",
                      to_string(shape_of(0)), to_string(next), axis));
    y.set(axis, y[axis] + next[axis]);
  }
  return y;
}

constexpr Record<AxisAttrs> concatenate_record{
    .name = "concatenate",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const AxisAttrs& a) -> Specs {
      return Spec{in[0].dtype(), concatenated_shape(
                                     in.size(), [&](std::size_t i) -> const Shape& { return in[i].shape(); }, a.axis)};
    },
    .forward =
        [](const Call& c, const AxisAttrs& a) {
          const Tensor& y = c.out[0];
          const kernels::Strides strides = kernels::contiguous_strides(y.shape());
          std::int64_t first = 0;
          for (std::size_t i = 0; i < c.in.size(); ++i) {
            const Tensor& x = c.in[i];
            kernels::copy_strided(x.shape(), size_of(y.dtype()), x.bytes(), kernels::contiguous_strides(x.shape()),
                                  y.bytes() + first * strides[static_cast<std::size_t>(a.axis)] *
                                                  static_cast<std::int64_t>(size_of(y.dtype())),
                                  strides);
            first += x.shape()[a.axis];
          }
        },
    .backward =
        [](Backward& b, const AxisAttrs& a) {
          const Tensor& g = b.grad();
          std::vector<Slice> parts(static_cast<std::size_t>(a.axis) + 1);
          std::int64_t first = 0;
          for (std::size_t i = 0; i < b.inputs(); ++i) {
            const std::int64_t size = b.input_spec(i).shape[a.axis];
            parts.back() = {first, first + size};
            if (b.needs(i)) b.give(i, slice(g, parts));
            first += size;
          }
        },
    .cost = [](const Inputs&, const Specs& out, const AxisAttrs&) -> Cost {
      return {.flops = 0, .bytes = 2 * static_cast<double>(out[0].bytes())};
    },
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const AxisAttrs& a) -> onnx::Values {
      const Shape y = concatenated_shape(
          in.size(), [&](std::size_t i) -> const Shape& { return in[i].spec.shape; }, a.axis);
      return {g.node("Concat", in, {in[0].spec.dtype, y}, {{"axis", a.axis}})};
    },
    .composed = no("primitive"),
    .specs = true};

// ---- one_hot: indices [..] -> [.., K] -------------------------------------------------------------------------------

struct OneHotAttrs {
  std::int64_t classes;
  DType dtype;
};
Attributes describe(const OneHotAttrs& a) { return {{"classes", a.classes}, {"dtype", std::string(name_of(a.dtype))}}; }

Shape one_hot_shape(Shape shape, const OneHotAttrs& a) {
  shape.push_back(a.classes);
  return shape;
}

constexpr Record<OneHotAttrs> one_hot_record{
    .name = "one_hot",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const OneHotAttrs& a) -> Specs {
      require_indices("one_hot", in[0]);
      return Spec{a.dtype, one_hot_shape(in[0].shape(), a)};
    },
    .forward =
        [](const Call& c, const OneHotAttrs& a) {
          const Tensor& indices = c.in[0];
          check_indices("one_hot", indices, 0, a.classes);
          kernels::one_hot(indices.dtype(), indices.bytes(), indices.size(), a.classes, a.dtype, c.out[0].bytes());
        },
    .backward = no("indices are integers"),
    .cost = [](const Inputs& in, const Specs& out, const OneHotAttrs&) { return elementwise_cost(in, out, 0); },
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const OneHotAttrs& a) -> onnx::Values {
      // The runtime's OneHot lacks most dtypes: index == class, for each class.
      const Shape hot = one_hot_shape(in[0].spec.shape, a);
      Shape column = in[0].spec.shape;
      column.push_back(1);
      const onnx::Value indices = lower_cast(g, in[0], int64);
      std::vector<std::int64_t> classes(static_cast<std::size_t>(a.classes));
      std::iota(classes.begin(), classes.end(), 0);
      const onnx::Value index = g.node("Unsqueeze", {indices, g.integers({column.rank() - 1})}, {int64, column});
      return {lower_cast(g, g.node("Equal", {index, g.integers(classes)}, {boolean, hot}), a.dtype)};
    },
    .composed = no("primitive")};

}  // namespace

extern const Op *const take_op, *const concatenate_op, *const one_hot_op;
constinit const Op* const take_op = &op_of<take_record>;
constinit const Op* const concatenate_op = &op_of<concatenate_record>;
constinit const Op* const one_hot_op = &op_of<one_hot_record>;

Tensor take(const Tensor& x, const Tensor& indices, std::int64_t axis) {
  return apply<take_record>({axis_of("take", axis, x.rank())}, x, indices);
}

Tensor concatenate(std::span<const Tensor> tensors, std::int64_t axis) {
  if (tensors.empty()) throw ShapeError("[concatenate] the list is empty; give at least one tensor");
  const std::int64_t at = axis_of("concatenate", axis, tensors[0].rank());
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) dtype = promote(dtype, t.dtype());
  if (std::ranges::all_of(tensors, [&](const Tensor& t) { return t.dtype() == dtype; }))
    return apply_list<concatenate_record>({at}, tensors);
  std::vector<Tensor> promoted;
  for (const Tensor& t : tensors) promoted.push_back(cast(t, dtype));
  return apply_list<concatenate_record>({at}, promoted);
}

Tensor stack(std::span<const Tensor> tensors, std::int64_t axis) {
  if (tensors.empty()) throw ShapeError("[stack] the list is empty; give at least one tensor");
  std::vector<Tensor> expanded;
  for (const Tensor& t : tensors) {
    if (t.shape() != tensors[0].shape())
      throw ShapeError(fmt::format("[stack] Cannot concatenate {} and {} along a new axis; all must have one shape",
                                   to_string(tensors[0].shape()), to_string(t.shape())));
    expanded.push_back(expand_dims(t, axis));
  }
  return concatenate(expanded, axis < 0 ? axis + expanded[0].rank() : axis);
}

Tensor one_hot(const Tensor& indices, std::int64_t classes, DType dtype) {
  if (classes <= 0) throw ShapeError(fmt::format("[one_hot] {} classes; there must be at least one", classes));
  return apply<one_hot_record>({classes, dtype}, indices);
}

}  // namespace everyo::inline v1
