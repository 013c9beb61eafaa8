#include "ops/elementwise.h"

#include <fmt/format.h>

#include "kernels/reduce.h"

namespace everyo::inline v1 {

Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const std::int64_t rank = a.rank() > b.rank() ? a.rank() : b.rank();
  Shape result = a.rank() > b.rank() ? a : b;
  for (std::int64_t d = 1; d <= rank; ++d) {
    const std::int64_t in_a = d <= a.rank() ? a[-d] : 1, in_b = d <= b.rank() ? b[-d] : 1;
    if (in_a != in_b && in_a != 1 && in_b != 1) {
      throw ShapeError(
          fmt::format("[{}] shapes {} and {} do not broadcast: {} and {} at dimension {}; sizes must be equal or 1, "
                      "from the last on",
                      op, to_string(a), to_string(b), in_a, in_b, -d));
    }
    if (const std::int64_t size = in_a == 1 ? in_b : in_a; size != result[-d]) result.set(-d, size);
  }
  return result;
}

namespace {

// The dimensions of `from` that `to` was repeated along.
kernels::AxisSet repeated_axes(const Shape& from, const Shape& to) {
  kernels::AxisSet axes = 0;
  for (std::int64_t d = 1; d <= from.rank(); ++d)
    if (d > to.rank() || to[-d] != from[-d]) axes |= kernels::axis_bit(from.rank() - d);
  return axes;
}

}  // namespace

void give_reduced(Backward& b, std::size_t input, Tensor gradient, const Shape& shape) {
  if (gradient.shape() == shape) return b.give(input, std::move(gradient));
  const DType dtype = gradient.dtype();
  const auto layout = kernels::reduce_layout(gradient.shape(), repeated_axes(gradient.shape(), shape));
  const Target target = b.target(input);
  const bool straight = target && !target.add && target.memory.dtype() == dtype;
  const Tensor sum = straight ? target.memory : Tensor::empty({dtype, shape});
  kernels::reduce(kernels::ReduceKind::sum, layout, dtype, gradient.bytes(), dtype, sum.bytes());
  if (straight) {
    b.wrote(input);
  } else {
    b.give(input, sum);
  }
}

Tensor as_floating(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, float32); }

Tensor as_float32_under_autocast(const Tensor& x) {
  return !is_floating(x.dtype()) || (is_half(x.dtype()) && context().autocast) ? cast(x, float32) : x;
}

void require_floating(std::string_view op, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DTypeError(fmt::format("[{}] takes a floating dtype, not {}; cast it first", op, name_of(x.dtype())));
}

Cost elementwise_cost(const Inputs& in, const Specs& out, double operations) {
  Cost cost{.flops = operations * static_cast<double>(out[0].shape.elements()),
            .bytes = static_cast<double>(out[0].bytes())};
  for (std::size_t i = 0; i < in.size(); ++i) cost.bytes += static_cast<double>(in[i].spec().bytes());
  return cost;
}

}  // namespace everyo::inline v1
