#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/copy.h"
#include "ops/elementwise.h"

// slice and select: ranges and single indices along the axes of x. y's element i along each axis is x's element
// start + i * step.
namespace everyo::inline v1 {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min(),
                       highest = std::numeric_limits<std::int64_t>::max();
// Where nothing is left backwards; in the runtime the highest number is no bound at all.
constexpr std::int64_t beyond = highest - 1;

// A range as it was asked for: negative bounds count from the end, and those outside are moved to it.
struct Asked {
  std::int64_t start = 0, stop = highest, step = 1;
  bool operator==(const Asked&) const = default;
};

struct SliceAttrs {
  Shape shape;  // of y with the axes that go away, whose sizes are 1
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> start{}, step{};
  std::array<Asked, static_cast<std::size_t>(Shape::max_rank)> asked{};
  std::uint32_t dropped = 0;  // bit d: axis d goes away

  [[nodiscard]] bool drops(std::int64_t axis) const { return (dropped >> axis & 1) != 0; }
};
Shape sliced_shape(const SliceAttrs& a) {
  Shape y;
  for (std::int64_t d = 0; d < a.shape.rank(); ++d)
    if (!a.drops(d)) y.push_back(a.shape[d]);
  return y;
}
// An axis each: where it starts, where it stops (below 0: before the first element), its step, and whether it goes
// away.
Attributes describe(const SliceAttrs& a) {
  std::vector<std::int64_t> start, stop, step, dropped;
  for (std::int64_t d = 0; d < a.shape.rank(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    start.push_back(a.start[at]);
    stop.push_back(a.start[at] + a.shape[d] * a.step[at]);
    step.push_back(a.step[at]);
    if (a.drops(d)) dropped.push_back(d);
  }
  return {{"start", start}, {"stop", stop}, {"step", step}, {"dropped", dropped}};
}

// y's elements as places in x: where the first lies, and how far apart they are.
struct Window {
  std::int64_t first = 0;
  kernels::Strides strides{};
};
Window window_of(const Shape& x, const SliceAttrs& a) {
  Window window;
  const kernels::Strides strides = kernels::contiguous_strides(x);
  for (std::size_t d = 0; d < static_cast<std::size_t>(x.rank()); ++d) {
    window.first += a.start[d] * strides[d];
    window.strides[d] = a.step[d] * strides[d];
  }
  return window;
}

std::byte* element_of(const Tensor& x, std::int64_t index) {
  return x.bytes() + index * static_cast<std::int64_t>(size_of(x.dtype()));
}

// In one piece: every axis that has more than one element steps by what lies inside it.
std::optional<std::size_t> view_of_slice(const Inputs& in, const SliceAttrs& a) {
  const Window window = window_of(in[0].shape(), a);
  std::int64_t expected = 1;
  for (std::int64_t d = a.shape.rank() - 1; d >= 0; --d) {
    if (a.shape[d] == 1) continue;
    if (window.strides[static_cast<std::size_t>(d)] != expected) return std::nullopt;
    expected *= a.shape[d];
  }
  if (a.shape.elements() == 0) return std::nullopt;
  return static_cast<std::size_t>(window.first) * size_of(in[0].dtype());
}

// A Slice of ONNX: some axes, a range each.
struct Ranges {
  std::vector<std::int64_t> starts, stops, axes, steps;

  void add(std::int64_t axis, const Asked& range) {
    starts.push_back(range.start);
    stops.push_back(range.stop);
    axes.push_back(axis);
    steps.push_back(range.step);
  }
  [[nodiscard]] onnx::Value node(onnx::Graph& g, const onnx::Value& x, const Shape& shape) const {
    if (axes.empty()) return x;
    return g.node("Slice", {x, g.integers(starts), g.integers(stops), g.integers(axes), g.integers(steps)},
                  {x.spec.dtype, shape});
  }
};

// ONNX resolves bounds by the same rules, so the file has them as asked for: they hold for any size of an axis. But it
// moves a start before the first element to that one: a range backwards from there is cut off at its start, and then
// taken from the last.
onnx::Values lower_slice(onnx::Graph& g, const onnx::Values& in, const SliceAttrs& a) {
  Ranges cuts, ranges;
  std::vector<std::int64_t> dropped;
  Shape cut = in[0].spec.shape;
  for (std::int64_t d = 0; d < a.shape.rank(); ++d) {
    Asked range = a.asked[static_cast<std::size_t>(d)];
    if (a.drops(d)) dropped.push_back(d);
    if (range == Asked{}) continue;
    if (range.step < 0 && range.start < -1) {
      const std::int64_t end = range.start + 1;
      cuts.add(d, {0, end, 1});
      cut.set(d, std::max<std::int64_t>(cut[d] + end, 0));
      if (range.stop < 0 && range.stop != lowest) range.stop = range.stop < end ? range.stop - end : beyond;
      range.start = highest;
    }
    ranges.add(d, range);
  }
  const onnx::Value y = ranges.node(g, cuts.node(g, in[0], cut), a.shape);
  if (!dropped.empty()) return {g.node("Squeeze", {y, g.integers(dropped)}, {y.spec.dtype, sliced_shape(a)})};
  return {ranges.axes.empty() ? g.node("Identity", {y}, y.spec) : y};
}

constexpr Record<SliceAttrs> slice_record{
    .name = "slice",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const SliceAttrs& a) -> Specs {
      return Spec{in[0].dtype(), sliced_shape(a)};
    },
    .forward =
        [](const Call& c, const SliceAttrs& a) {
          const Tensor &x = c.in[0], &y = c.out[0];
          if (y.size() == 0) return;
          const Window window = window_of(x.shape(), a);
          kernels::copy_strided(a.shape, size_of(x.dtype()), element_of(x, window.first), window.strides, y.bytes(),
                                kernels::contiguous_strides(a.shape));
        },
    .view = view_of_slice,
    .backward =
        [](Backward& b, const SliceAttrs& a) {
          const Spec x = b.input_spec(0);
          const Tensor &g = b.grad(), grad_x = Tensor::empty(x);
          std::memset(grad_x.bytes(), 0, x.bytes());
          if (g.size() != 0) {
            const Window window = window_of(x.shape, a);
            kernels::copy_strided(a.shape, size_of(x.dtype), g.bytes(), kernels::contiguous_strides(a.shape),
                                  element_of(grad_x, window.first), window.strides);
          }
          b.give(0, grad_x);
        },
    .cost = [](const Inputs&, const Specs& out, const SliceAttrs&) -> Cost {
      return {.flops = 0, .bytes = 2 * static_cast<double>(out[0].bytes())};
    },
    .onnx = lower_slice,
    .composed = no("primitive"),
    .specs = true};

// The place of an index, which may count from the end.
std::int64_t place_of(std::string_view op, std::int64_t index, const Shape& x, std::int64_t axis) {
  const std::int64_t size = x[axis];
  if (index < -size || index >= size)
    throw ShapeError(fmt::format("[{}] index {} is out of range for axis {} of shape {}; it takes {} to {}", op, index,
                                 axis, to_string(x), -size, size - 1));
  return index < 0 ? index + size : index;
}

// One element: after the last one nothing stops.
Asked asked_at(std::int64_t index) { return {index, index == -1 ? highest : index + 1, 1}; }

// Python's rules: negative bounds count from the end, and bounds outside are moved to it.
void resolve(const Slice& slice, const Shape& x, std::int64_t axis, SliceAttrs& a) {
  const std::int64_t size = x[axis];
  const auto at = static_cast<std::size_t>(axis);
  if (slice.drop) {
    a.shape.push_back(1);
    a.start[at] = place_of("slice", slice.start.value_or(0), x, axis);
    a.step[at] = 1;
    a.asked[at] = asked_at(slice.start.value_or(0));
    a.dropped |= std::uint32_t{1} << axis;
    return;
  }
  if (slice.step == 0)
    throw ValueError(fmt::format("[slice] the step of axis {} is 0; it must be positive or negative", axis));
  const bool forward = slice.step > 0;
  const auto bound = [&](std::optional<std::int64_t> given, std::int64_t open) {
    if (!given) return open;
    const std::int64_t i = *given < 0 ? (*given < -size ? -1 : *given + size) : *given;
    return forward ? std::clamp<std::int64_t>(i, 0, size) : std::clamp<std::int64_t>(i, -1, size - 1);
  };
  const std::int64_t start = bound(slice.start, forward ? 0 : size - 1), stop = bound(slice.stop, forward ? size : -1);
  // A longer step picks the same one element.
  const std::int64_t longest = std::max<std::int64_t>(size, 1), step = std::clamp(slice.step, -longest, longest);
  const std::int64_t span = forward ? stop - start : start - stop, stride = forward ? step : -step;
  a.shape.push_back(span <= 0 ? 0 : 1 + (span - 1) / stride);
  a.start[at] = start;
  a.step[at] = step;
  a.asked[at] = {slice.start.value_or(forward ? 0 : highest),
                 slice.stop ? std::min(*slice.stop, beyond) : (forward ? highest : lowest), slice.step};
}

}  // namespace

extern const Op* const slice_op;
constinit const Op* const slice_op = &op_of<slice_record>;

Tensor slice(const Tensor& x, std::span<const Slice> slices) {
  if (slices.size() > static_cast<std::size_t>(x.rank()))
    throw ShapeError(fmt::format("[slice] {} slices are more entries than shape {} has dimensions", slices.size(),
                                 to_string(x.shape())));
  SliceAttrs attrs;
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    resolve(at < slices.size() ? slices[at] : Slice{}, x.shape(), d, attrs);
  }
  return apply<slice_record>(attrs, x);
}

Tensor select(const Tensor& x, std::int64_t index, std::int64_t axis) {
  const std::int64_t d = axis_of("select", axis, x.rank());
  SliceAttrs attrs{.shape = x.shape(), .dropped = std::uint32_t{1} << d};
  attrs.shape.set(d, 1);
  attrs.step.fill(1);
  attrs.start[static_cast<std::size_t>(d)] = place_of("select", index, x.shape(), d);
  attrs.asked[static_cast<std::size_t>(d)] = asked_at(index);
  return apply<slice_record>(attrs, x);
}

}  // namespace everyo::inline v1
