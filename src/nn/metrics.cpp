#include "everyo/nn/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace everyo::inline v1 {
namespace {

// The class of each row; NaN is not larger than anything, so a row of NaN counts as class 0.
std::vector<double> classes_of(const Tensor& t, const char* side) {
  const Shape& shape = t.shape();
  std::vector<double> values = t.to_vector();
  if (shape.rank() == 1 || (shape.rank() == 2 && shape[1] == 1)) return values;
  if (shape.rank() != 2 || shape[1] == 0)
    throw ShapeError(fmt::format("[accuracy] {} has shape {}; it must be scores (batch, classes) or classes (batch,)",
                                 side, to_string(shape)));
  std::vector<double> classes;
  const auto width = shape[1];
  for (auto row = values.begin(); row != values.end(); row += width)
    classes.push_back(static_cast<double>(std::max_element(row, row + width) - row));
  return classes;
}

}  // namespace

double accuracy(const Tensor& prediction, const Tensor& target) {
  const std::vector<double> predicted = classes_of(prediction, "prediction"), wanted = classes_of(target, "target");
  if (predicted.size() != wanted.size())
    throw ShapeError(fmt::format("[accuracy] prediction {} and target {} have {} and {} rows; they must have as many",
                                 to_string(prediction.shape()), to_string(target.shape()), predicted.size(),
                                 wanted.size()));
  if (predicted.empty()) return 0;
  std::size_t right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == wanted[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(predicted.size());
}

}  // namespace everyo::inline v1
