#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "everyo/train.h"

// Why a step cannot be made.
namespace everyo::inline v1 {
namespace {

bool all_finite(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype())) return true;
  return visit_dtype(t.dtype(), [&]<class T>() {
    const auto values = t.data<T>();
    return std::all_of(values.begin(), values.end(), [](T v) { return std::isfinite(static_cast<double>(widen(v))); });
  });
}

}  // namespace

void Trainer::report_bad_loss(const Tensor& loss, const MicroBatch& part) {
  const std::vector<Tensor> parameters = model_.parameters();
  std::string cause;
  if (!all_finite(part.features) || !all_finite(part.targets)) {
    cause = "the batch itself has values that are not finite; look at the data";
  } else if (const std::string value = first_nonfinite(parameters, true); !value.empty()) {
    cause = fmt::format(
        "parameter '{}' is the first with a value that is not finite; try a lower learning rate, or "
        "clip the gradients",
        value);
  } else {
    optimizer_.zero_grad();
    loss.backward();
    const std::string gradient = first_nonfinite(parameters);
    cause = gradient.empty() ? "all parameters and gradients are finite; look at the loss function"
                             : fmt::format(
                                   "all parameters are finite; '{}' is the first whose gradient is not; try a lower "
                                   "learning rate, or clip the gradients",
                                   gradient);
  }
  optimizer_.zero_grad();
  const double value = loss.item();
  const char* range =
      config_.precision == float16 ? "; values above 65504 are infinite in float16, so try bfloat16, too" : "";
  throw StateError(fmt::format("[Trainer] step {}: the loss is {}; {}{}", step_ + 1,
                               std::isnan(value) ? std::abs(value) : value, cause, range));
}

void Trainer::report_bad_gradient(double norm) {
  const std::string gradient = first_nonfinite(model_.parameters());
  optimizer_.zero_grad();
  const std::string cause = gradient.empty() ? "each is finite, and their squares overflow"
                                             : fmt::format("'{}' is the first whose gradient is not finite", gradient);
  throw StateError(
      fmt::format("[Trainer] step {}: the loss is finite, and the gradients' norm is {}; {}; try a lower "
                  "learning rate",
                  step_ + 1, std::isnan(norm) ? std::abs(norm) : norm, cause));
}

}  // namespace everyo::inline v1
