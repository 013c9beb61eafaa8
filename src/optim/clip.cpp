#include <fmt/format.h>

#include <cmath>

#include "everyo/optim.h"
#include "kernels/gradients.h"

namespace everyo::inline v1 {
namespace {
// The gradient of a slot, or null. Refuses one that is still scaled.
const Tensor* gradient_of(const char* op, const Tensor& parameter) {
  if (!parameter.defined() || !parameter.body()->leaf) return nullptr;
  const Leaf& leaf = *parameter.body()->leaf;
  if (!leaf.grad.full) return nullptr;
  if (leaf.grad.scale != 1)
    throw StateError(fmt::format("[{}] the gradient of '{}' is still multiplied by {}; unscale it before clipping", op,
                                 leaf.name, leaf.grad.scale));
  return &leaf.grad.value;
}
}  // namespace

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, const ClipOptions& options) {
  if (!(max_norm > 0)) throw ValueError(fmt::format("[clip_grad_norm] max_norm {} must be positive", max_norm));
  double squares = 0;
  for (const Tensor& p : parameters)
    if (const Tensor* g = gradient_of("clip_grad_norm", p))
      squares += kernels::sum_of_squares(g->dtype(), g->bytes(), g->size());
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm) && options.error_if_nonfinite)
    throw StateError(
        fmt::format("[clip_grad_norm] the norm is {}; the first gradient that is not finite is that of "
                    "'{}'; lower the learning rate or scale the loss",
                    norm, first_nonfinite(parameters)));
  if (norm <= max_norm) return norm;
  for (const Tensor& p : parameters)
    if (const Tensor* g = gradient_of("clip_grad_norm", p)) {
      kernels::scale_in_place(g->dtype(), g->bytes(), g->size(), max_norm / norm);
      g->body()->storage->bump_version();
    }
  return norm;
}

void clip_grad_value(std::span<const Tensor> parameters, double limit) {
  if (!(limit > 0)) throw ValueError(fmt::format("[clip_grad_value] limit {} must be positive", limit));
  for (const Tensor& p : parameters)
    if (const Tensor* g = gradient_of("clip_grad_value", p)) {
      kernels::clip_in_place(g->dtype(), g->bytes(), g->size(), limit);
      g->body()->storage->bump_version();
    }
}

std::string first_nonfinite(std::span<const Tensor> parameters, bool values) {
  for (const Tensor& p : parameters) {
    if (!p.defined() || !p.body()->leaf) continue;
    const Leaf& leaf = *p.body()->leaf;
    if (!values && !leaf.grad.full) continue;
    const Tensor& t = values ? p : leaf.grad.value;
    if (!t.is_meta() && !kernels::all_finite(t.dtype(), t.bytes(), t.size()))
      return leaf.name.empty() ? "(unnamed)" : leaf.name;
  }
  return {};
}

}  // namespace everyo::inline v1
