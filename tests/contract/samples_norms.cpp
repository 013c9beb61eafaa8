#include <cmath>
#include <random>

#include "contract/samples.h"

// Samples of the norms. N batch, C channels.
namespace everyo_test::contract {
namespace {

using eo::Activation;

constexpr double eps = 1e-3;  // large enough to show in the values

// weight (x - mean) / sqrt(variance + eps) + bias, then ReLU, of one element.
struct Affine {
  std::span<const Values> in;
  std::size_t first;  // of the parameters
  Activation activation;
  [[nodiscard]] double operator()(double x, double mean, double variance, std::size_t c) const {
    double y = (x - mean) / std::sqrt(variance + eps);
    if (in.size() > first) y *= in[first].v[c];
    if (in.size() > first + 1) y += in[first + 1].v[c];
    return activation == Activation::relu ? std::max(y, 0.0) : y;
  }
};

// x of [-2, 2] that is no linear function of the gradient the laws draw: of such a one a norm's gradient is next to 0.
Input unrelated(const eo::Shape& shape) {
  std::mt19937 engine(5);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& v : values) v = -2 + 4 * (static_cast<double>(engine()) + 0.5) * 0x1p-32;
  return {.shape = shape, .values = values};
}

// The mean and the biased variance of the elements that `member` picks.
template <class Member>
std::pair<double, double> moments_of(const std::vector<double>& x, Member member) {
  double sum = 0, count = 0, spread = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (member(i)) sum += x[i], count += 1;
  const double mean = sum / count;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (member(i)) spread += (x[i] - mean) * (x[i] - mean);
  return {mean, spread / count};
}

std::size_t last_of(const eo::Shape& shape) { return static_cast<std::size_t>(shape[-1]); }

eo::Tensor operand(Tensors in, std::size_t i) { return i < in.size() ? in[i] : eo::Tensor(); }

void bound_errors(Case& c, Activation activation) {
  // A weight's gradient is a sum of as many terms as there are rows, most of which cancel: 1e-7 of their absolute sum
  // in float32, and in the differences 1e-16 of the whole result's over the step.
  c.tolerance.float32 = 5e-6;
  c.tolerance.gradient = 5e-7;
  // For the same reason; the fused op sums wide, the composition rounds each step. ReLU rounds nothing.
  c.tolerance.composed = activation == Activation::relu ? 0 : 64;
}

Case batch_norm_case(const eo::Shape& shape, Activation activation, int parameters = 2) {
  Case c{.inputs = {unrelated(shape)},
         .run =
             [activation](Tensors in) {
               return eo::batch_norm(in[0], operand(in, 1), operand(in, 2), {.eps = eps, .activation = activation}).y;
             },
         .reference =
             [activation](std::span<const Values> in) {
               const std::size_t channels = last_of(in[0].shape);
               const Affine affine{in, 1, activation};
               std::vector<double> y(in[0].v.size());
               for (std::size_t k = 0; k < channels; ++k) {
                 const auto [mean, variance] = moments_of(in[0].v, [=](std::size_t i) { return i % channels == k; });
                 for (std::size_t i = k; i < y.size(); i += channels) y[i] = affine(in[0].v[i], mean, variance, k);
               }
               return y;
             },
         .flops = (activation == Activation::relu ? 8.0 : 7.0) * static_cast<double>(shape.elements())};
  for (int p = 0; p < parameters; ++p) c.inputs.push_back({.shape = {shape[-1]}, .low = 0.5, .high = 1.5});
  if (parameters == 2) c.inputs[2].low = -0.5;
  bound_errors(c, activation);
  return c;
}

Samples batch_norm(const char* op, Activation activation) {
  const auto of = [activation](const eo::Shape& shape, int parameters = 2) {
    return batch_norm_case(shape, activation, parameters);
  };
  Samples samples{.op = op, .at = [of](std::int64_t n) { return of({n, 2, 3, 5}); }, .large = 4001};
  samples.cases = {of({6, 3}), of({40, 33}, 1), of({7, 8}, 0), of({5, 1}), of({3, 5, 7, 64}), of({67, 2, 16})};
  const auto ones = [](const eo::Shape& shape) { return eo::Tensor::ones(shape); };
  samples.refusals = {{.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), ones({2}), ones({3}));
                           },
                       .text = {"batch_norm", "weight", "(2,)", "(4, 3)", "last axis"}},
                      {.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), ones({3}), ones({3, 1}));
                           },
                       .text = {"batch_norm", "bias", "(3, 1)"}},
                      {.run = [=] { eo::batch_norm(ones({3})); }, .text = {"batch_norm", "(3,)", "channels"}},
                      {.run =
                           [=] {
                             eo::batch_norm(ones({1, 3}));
                           },
                       .text = {"batch_norm", "(1, 3)", "one value"}},
                      {.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), {}, {}, {.eps = 0});
                           },
                       .text = {"batch_norm", "eps", "positive"},
                       .kind = eo::ErrorKind::value},
                      {.run =
                           [=] {
                             eo::batch_norm(eo::cast(ones({4, 3}), eo::int32));
                           },
                       .text = {"batch_norm", "int32"},
                       .kind = eo::ErrorKind::dtype}};
  return samples;
}

Case eval_case(const eo::Shape& shape, Activation activation, int parameters = 2) {
  const eo::Shape channels{shape[-1]};
  Case c{.inputs = {{.shape = shape},
                    {.shape = channels, .low = -1, .high = 1, .gradient = false},
                    {.shape = channels, .low = 0.2, .high = 2, .gradient = false}},
         .run =
             [activation](Tensors in) {
               return eo::batch_norm(in[0], in[1], in[2], operand(in, 3), operand(in, 4),
                                     {.eps = eps, .activation = activation});
             },
         .reference =
             [activation](std::span<const Values> in) {
               const std::size_t count = last_of(in[0].shape);
               const Affine affine{in, 3, activation};
               std::vector<double> y(in[0].v.size());
               for (std::size_t i = 0; i < y.size(); ++i)
                 y[i] = affine(in[0].v[i], in[1].v[i % count], in[2].v[i % count], i % count);
               return y;
             },
         .flops = (activation == Activation::relu ? 4.0 : 3.0) * static_cast<double>(shape.elements())};
  for (int p = 0; p < parameters; ++p) c.inputs.push_back({.shape = channels, .low = 0.5, .high = 1.5});
  if (parameters == 2) c.inputs[4].low = -0.5;
  // The composition rounds after each step: a difference, a quotient, a product and a sum.
  c.tolerance.composed = activation == Activation::relu ? 0 : 4;
  return c;
}

Samples batch_norm_eval(const char* op, Activation activation) {
  const auto of = [activation](const eo::Shape& shape, int parameters = 2) {
    return eval_case(shape, activation, parameters);
  };
  Samples samples{.op = op, .at = [of](std::int64_t n) { return of({n, 2, 3, 5}); }, .large = 4001};
  samples.cases = {of({6, 3}), of({4, 33}, 1), of({1, 8}, 0), of({5, 1}), of({3, 2, 64})};
  const auto ones = [](const eo::Shape& shape) { return eo::Tensor::ones(shape); };
  samples.refusals = {{.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), ones({2}), ones({3}), {}, {});
                           },
                       .text = {"batch_norm", "mean", "(2,)", "last axis"}},
                      {.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), ones({3}), ones({3}), {}, ones({4}));
                           },
                       .text = {"batch_norm", "bias", "(4,)"}},
                      {.run =
                           [=] {
                             eo::batch_norm(ones({4, 3}), ones({3}), ones({3}), {}, {}, {.eps = -1});
                           },
                       .text = {"batch_norm", "eps", "-1"},
                       .kind = eo::ErrorKind::value}};
  return samples;
}

Case layer_norm_case(const eo::Shape& shape, const eo::Shape& row, Activation activation, int parameters = 2) {
  Case c{.inputs = {unrelated(shape)},
         .run =
             [=](Tensors in) {
               return eo::layer_norm(in[0], row, operand(in, 1), operand(in, 2),
                                     {.eps = eps, .activation = activation});
             },
         .reference =
             [=](std::span<const Values> in) {
               const auto width = static_cast<std::size_t>(row.elements());
               const Affine affine{in, 1, activation};
               std::vector<double> y(in[0].v.size());
               for (std::size_t first = 0; first < y.size(); first += width) {
                 const auto begin = in[0].v.begin() + static_cast<std::ptrdiff_t>(first);
                 const auto [mean, variance] =
                     moments_of(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(width)),
                                [](std::size_t) { return true; });
                 for (std::size_t j = 0; j < width; ++j) y[first + j] = affine(in[0].v[first + j], mean, variance, j);
               }
               return y;
             },
         .flops = (activation == Activation::relu ? 10.0 : 9.0) * static_cast<double>(shape.elements())};
  for (int p = 0; p < parameters; ++p) c.inputs.push_back({.shape = row, .low = 0.5, .high = 1.5});
  if (parameters == 2) c.inputs[2].low = -0.5;
  bound_errors(c, activation);
  return c;
}

Samples layer_norm(const char* op, Activation activation) {
  const auto of = [activation](const eo::Shape& shape, const eo::Shape& row, int parameters = 2) {
    return layer_norm_case(shape, row, activation, parameters);
  };
  Samples samples{.op = op, .at = [of](std::int64_t n) { return of({n, 5}, {5}); }, .large = 4001};
  samples.cases = {of({3, 2, 4}, {2, 4}), of({7}, {7}),        of({4, 33}, {33}, 1),
                   of({2, 3, 8}, {8}, 0), of({2, 300}, {300}), of({40, 3, 1}, {3, 1})};
  const auto ones = [](const eo::Shape& shape) { return eo::Tensor::ones(shape); };
  samples.refusals = {{.run =
                           [=] {
                             eo::layer_norm(ones({4, 3}), {4});
                           },
                       .text = {"layer_norm", "(4, 3)", "(4,)", "trailing axes"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({3}), {1, 3});
                           },
                       .text = {"layer_norm", "trailing axes"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({4, 3}), {});
                           },
                       .text = {"layer_norm", "positive normalized_shape"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({4, 0}), {0});
                           },
                       .text = {"layer_norm", "positive normalized_shape"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({4, 3}), {3}, ones({4}));
                           },
                       .text = {"layer_norm", "weight", "(4,)"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({4, 3}), {3}, {}, ones({4}));
                           },
                       .text = {"layer_norm", "bias", "(4,)"}},
                      {.run =
                           [=] {
                             eo::layer_norm(ones({4, 3}), {3}, {}, {}, {.eps = 0});
                           },
                       .text = {"layer_norm", "eps", "positive"},
                       .kind = eo::ErrorKind::value}};
  return samples;
}

Case group_norm_case(const eo::Shape& shape, std::int64_t groups, Activation activation, int parameters = 2) {
  Case c{.inputs = {unrelated(shape)},
         .run =
             [=](Tensors in) {
               return eo::group_norm(in[0], groups, operand(in, 1), operand(in, 2),
                                     {.eps = eps, .activation = activation});
             },
         .reference =
             [=](std::span<const Values> in) {
               const std::size_t channels = last_of(in[0].shape), size = channels / static_cast<std::size_t>(groups);
               const Affine affine{in, 1, activation};
               const std::size_t sample =
                   in[0].shape[0] == 0 ? 1 : in[0].v.size() / static_cast<std::size_t>(in[0].shape[0]);
               std::vector<double> y(in[0].v.size());
               for (std::size_t first = 0; first < y.size(); first += sample) {
                 const auto begin = in[0].v.begin() + static_cast<std::ptrdiff_t>(first);
                 const std::vector<double> x(begin, begin + static_cast<std::ptrdiff_t>(sample));
                 for (std::size_t group = 0; group * size < channels; ++group) {
                   const auto member = [=](std::size_t i) { return i % channels / size == group; };
                   const auto [mean, variance] = moments_of(x, member);
                   for (std::size_t i = 0; i < sample; ++i)
                     if (member(i)) y[first + i] = affine(x[i], mean, variance, i % channels);
                 }
               }
               return y;
             },
         .flops = (activation == Activation::relu ? 8.0 : 7.0) * static_cast<double>(shape.elements())};
  for (int p = 0; p < parameters; ++p) c.inputs.push_back({.shape = {shape[-1]}, .low = 0.5, .high = 1.5});
  if (parameters == 2) c.inputs[2].low = -0.5;
  bound_errors(c, activation);
  return c;
}

Samples group_norm(const char* op, Activation activation) {
  const auto of = [activation](const eo::Shape& shape, std::int64_t groups, int parameters = 2) {
    return group_norm_case(shape, groups, activation, parameters);
  };
  Samples samples{.op = op, .at = [of](std::int64_t n) { return of({n, 2, 3, 6}, 3); }, .large = 2001};
  samples.cases = {of({3, 8}, 2), of({2, 5, 5}, 1), of({2, 4, 4}, 4, 1), of({2, 9, 64}, 8, 0), of({1, 40, 3}, 1)};
  const auto ones = [](const eo::Shape& shape) { return eo::Tensor::ones(shape); };
  samples.refusals = {{.run =
                           [=] {
                             eo::group_norm(ones({4, 6}), 4);
                           },
                       .text = {"group_norm", "4 groups", "6 channels", "divide"}},
                      {.run =
                           [=] {
                             eo::group_norm(ones({4, 6}), 0);
                           },
                       .text = {"group_norm", "0 groups", "positive"}},
                      {.run = [=] { eo::group_norm(ones({6}), 2); }, .text = {"group_norm", "(6,)", "batch"}},
                      {.run =
                           [=] {
                             eo::group_norm(ones({4, 6}), 2, ones({2}));
                           },
                       .text = {"group_norm", "weight", "(2,)"}},
                      {.run =
                           [=] {
                             eo::group_norm(ones({4, 6}), 2, {}, {}, {.eps = -1});
                           },
                       .text = {"group_norm", "eps", "-1"},
                       .kind = eo::ErrorKind::value}};
  return samples;
}

}  // namespace

void add_norm_samples(SampleList& list) {
  list.push_back(batch_norm("batch_norm", Activation::none));
  list.push_back(batch_norm("batch_norm_activation", Activation::relu));
  list.push_back(batch_norm_eval("batch_norm_eval", Activation::none));
  list.push_back(batch_norm_eval("batch_norm_eval_activation", Activation::relu));
  list.push_back(layer_norm("layer_norm", Activation::none));
  list.push_back(layer_norm("layer_norm_activation", Activation::relu));
  list.push_back(group_norm("group_norm", Activation::none));
  list.push_back(group_norm("group_norm_activation", Activation::relu));
}

}  // namespace everyo_test::contract
