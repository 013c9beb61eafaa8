#include "contract/samples.h"

#include <algorithm>

namespace everyo_test::contract {

const SampleList& all_samples() {
  static const SampleList list = [] {
    SampleList all;
    add_arithmetic_samples(all);
    add_unary_samples(all);
    add_matmul_samples(all);
    add_pool_samples(all);
    add_reduce_samples(all);
    add_loss_samples(all);
    add_norm_samples(all);
    add_shape_samples(all);
    add_image_samples(all);
    return all;
  }();
  return list;
}

const Samples* samples_of(std::string_view op) {
  const auto at = std::ranges::find(all_samples(), op, &Samples::op);
  return at == all_samples().end() ? nullptr : &*at;
}

eo::Shape broadcast_shapes(std::span<const Values> in) {
  eo::Shape shape;
  for (const Values& each : in) {
    const std::int64_t rank = std::max(shape.rank(), each.shape.rank());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank), 1);
    for (std::int64_t d = 1; d <= rank; ++d) {
      const std::int64_t a = d <= shape.rank() ? shape[-d] : 1, b = d <= each.shape.rank() ? each.shape[-d] : 1;
      sizes[static_cast<std::size_t>(rank - d)] = a == 1 ? b : a;
    }
    shape = eo::Shape(sizes);
  }
  return shape;
}

std::vector<double> broadcast(const Values& values, const eo::Shape& shape) {
  std::vector<double> out(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), at = 0, stride = 1;
    for (std::int64_t d = 1; d <= shape.rank(); ++d) {
      const std::int64_t index = rest % shape[-d];
      rest /= shape[-d];
      if (d > values.shape.rank()) continue;
      if (values.shape[-d] != 1) at += index * stride;
      stride *= values.shape[-d];
    }
    out[i] = values.v[static_cast<std::size_t>(at)];
  }
  return out;
}

}  // namespace everyo_test::contract
