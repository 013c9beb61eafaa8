#include "everyo/nn/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "everyo/ops.h"

namespace everyo::inline v1 {
namespace {

// The class of each row, as argmax has it.
std::vector<double> classes_of(const char* op, const Tensor& t, const char* side) {
  const Shape& shape = t.shape();
  if (shape.rank() == 1 || (shape.rank() == 2 && shape[1] == 1)) return t.to_vector();
  if (shape.rank() != 2 || shape[1] == 0)
    throw ShapeError(fmt::format("[{}] {} has shape {}; it must be scores (batch, classes) or classes (batch,)", op,
                                 side, to_string(shape)));
  const NoGrad no_grad;
  return argmax(t, 1).to_vector();
}

struct Classes {
  std::vector<double> predicted, wanted;
};
Classes classes_of(const char* op, const Tensor& prediction, const Tensor& target) {
  Classes sides{classes_of(op, prediction, "prediction"), classes_of(op, target, "target")};
  if (sides.predicted.size() != sides.wanted.size())
    throw ShapeError(fmt::format("[{}] prediction {} and target {} have {} and {} rows; they must have as many", op,
                                 to_string(prediction.shape()), to_string(target.shape()), sides.predicted.size(),
                                 sides.wanted.size()));
  return sides;
}

}  // namespace

double accuracy(const Tensor& prediction, const Tensor& target) {
  const auto [predicted, wanted] = classes_of("accuracy", prediction, target);
  if (predicted.empty()) return 0;
  std::size_t right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == wanted[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(predicted.size());
}

Tensor confusion_matrix(const Tensor& prediction, const Tensor& target, std::int64_t classes) {
  if (classes < 1)
    throw ValueError(fmt::format("[confusion_matrix] {} classes are too few; the number must be positive", classes));
  const auto [predicted, wanted] = classes_of("confusion_matrix", prediction, target);
  const auto checked = [&](const char* side, const std::vector<double>& list, std::size_t row) {
    const double c = list[row];
    if (c >= 0 && c < static_cast<double>(classes) && c == std::floor(c)) return static_cast<std::size_t>(c);
    throw ValueError(fmt::format("[confusion_matrix] class {} in row {} of the {} is out of range; {} classes are the "
                                 "whole numbers 0 to {}",
                                 c, row, side, classes, classes - 1),
                     ErrorKind::shape);
  };
  const Tensor matrix = Tensor::zeros({classes, classes}, int64);
  const auto counts = matrix.data<std::int64_t>();
  for (std::size_t row = 0; row < wanted.size(); ++row)
    ++counts[checked("target", wanted, row) * static_cast<std::size_t>(classes) +
             checked("prediction", predicted, row)];
  return matrix;
}

}  // namespace everyo::inline v1
